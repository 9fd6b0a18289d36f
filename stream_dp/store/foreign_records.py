"""Records of a journal that stream_dp did not write: passed over and reported, if the others can be read without them.

Only workers and operators should be able to write there.  If somebody else can, nothing that they write may stop a
stream, or be taken for less than what was spent.
"""

import logging

logger = logging.getLogger(__name__)

LEAVE_OUT = (
    'copy the topic without it, as "A record that does not belong in a journal" in '
    "docs/operations/operations.md says"
)
"""The way out of a record that cannot be passed over, as a part of a sentence."""

_seen: dict[str, tuple[int, int]] = {}  # by topic: the last offset that was reported, and how many were


def passed_over(topic: str, offset: int, why: str) -> None:
    """Warn of a record that counts for nothing: of the first one of a topic, and whenever their number has doubled."""
    last, number = _seen.get(topic, (-1, 0))
    if offset <= last:  # another reader in this process has met it
        return
    number += 1
    _seen[topic] = offset, number
    if number & (number - 1) == 0:
        logger.warning(
            "the record at offset %d of the topic %r %s, and is passed over (%d so far): let only workers and "
            "operators write there",
            offset,
            topic,
            why,
            number,
        )
