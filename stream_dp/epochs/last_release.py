"""Whether a state reproduces the release that was published for its round: the last check before a checkpoint is used.

Its digests say that Redis holds what was written.  This says that what was written, and how this program reads it, is
what everybody has seen.
"""

import logging

from stream_dp.config.settings import Settings
from stream_dp.epochs.published import Published, published
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.store.checkpoints import Checkpoint, StateDamaged

logger = logging.getLogger(__name__)

_FIRST_LOOK, _LAST_LOOK = 16, 4096  # records


def check_last_release(settings: Settings, checkpoint: Checkpoint, restored: Pipeline, begin: int) -> None:
    """Compare what `restored` gives for the round of its checkpoint with what the releases topic holds of it.

    Where that round was not released, or its release is not there any more, only the labels of the last release before
    it can be compared: the state must know them.  `begin`: see `begin_after`.

    Raises `StateDamaged`, and `LogRefused` as `published` does.
    """
    round_number, labels = checkpoint.state.round, checkpoint.state.labels
    if not round_number:
        return
    found = _last_published(settings, checkpoint, begin)
    if found and found[0].release.round == round_number:
        values = restored.last_release(found[0].release.previous)
        if any(
            each.release.part > len(values) or each.value != values[each.release.part - 1] for each in found
        ):
            raise other_than_published(round_number)
        return
    if not {label for each in found for label in each.release.labels} <= set(labels):
        raise other_than_published(found[0].release.round)
    if not found or found[0].release.round < checkpoint.position.released:
        logger.warning(
            "the state of round %d was not compared with a release: the topic %r no longer holds it",
            round_number,
            settings.releases,
        )


def other_than_published(round_number: int) -> StateDamaged:
    """What to say where the state does not fit what was published in a round."""
    return StateDamaged(
        f"the state in Redis does not reproduce what was published in round {round_number}: nothing is released; "
        "restore it from its backup, or rebuild it from the noise key and the events topic with "
        "`stream-dp rebuild --replace`"
    )


def _last_published(settings: Settings, checkpoint: Checkpoint, end: int) -> list[Published]:
    """The parts of the last release up to the checkpoint's round, as far as they are there.

    They stand before the releases that follow the checkpoint, and again after those that a worker sent once more.
    """
    nonce, look = checkpoint.epoch.nonce.hex(), _FIRST_LOOK
    while True:
        found = [
            each
            for each in published(settings, max(0, end - look))
            if each.release.nonce == nonce and each.release.round <= checkpoint.state.round
        ]
        last = max((each.release.round for each in found), default=0)
        parts = [each for each in found if each.release.round == last]
        if len({each.release.part for each in parts}) == (parts[0].release.parts if parts else -1):
            return parts
        if look >= min(end, _LAST_LOOK):
            return parts
        look *= _FIRST_LOOK
