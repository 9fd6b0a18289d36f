"""Which replays are allowed.  Every event that is replayed into a stream is released under another guarantee.

Its cost must be charged to the data source that the event comes from, and one epoch must count it at most once:
everything else would guarantee more than holds.  docs/replay.md tells the rules to users; each raises `LogRefused`.
"""

from stream_dp.config.settings import Settings
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.registry import Registered, Registry
from stream_dp.kafka import log
from stream_dp.kafka.log import LogRefused
from stream_dp.store.ledger import LedgerRefused

_OURS = (".releases", ".epochs", ".barriers", ".ledger", ".dead-letters", ".results", ".jobs")


def is_counted(settings: Settings, into: str) -> bool:
    """Whether a stream counts what is written into this topic, as far as its name and the settings tell."""
    return into == settings.events or into.endswith(".events")


def check_target(
    settings: Settings, into: str, topic: str | None, name: str | None, file: str | None = None
) -> None:
    """Refuse unless events of `topic`, or of the `file` of this name in the registry, may go `into` a topic.

    `settings` are those of the target stream; `name` is the data source that the user named.
    """
    if into == topic:
        raise LogRefused(f"the topic {into!r} would be replayed into itself: every event would count twice")
    for each in (into, topic or ""):
        if each.endswith(_OURS):
            raise LogRefused(f"the topic {each!r} is written by stream_dp alone and holds no events")
    if not is_counted(settings, into):
        return
    if into != settings.events:
        raise LogRefused(
            f"the topic {into!r} belongs to another stream than the settings, which are of {settings.stream!r}: give "
            f"that stream's with --settings, or name it with --stream {into.removesuffix('.events')}"
        )
    known = log.topics(settings.kafka_address)
    try:
        registry = Registry(settings.kafka_address)
    except LedgerRefused as refused:
        raise LogRefused(str(refused)) from None
    origin = _origin(registry, known, topic, file, name)
    if settings.data_source != origin:
        raise LogRefused(
            f"epochs of stream {settings.stream!r} are charged to {settings.data_source!r}, but these events are "
            f'{origin!r}\'s: put source = "{origin}" into the settings of a stream for the replay'
        )
    if settings.epochs in known:
        _check_charged(settings)


def _origin(
    registry: Registry, known: set[str], topic: str | None, file: str | None, name: str | None
) -> str:
    """The data source that the events belong to.  What is registered has the last word."""
    registered = registry.owner("topic", topic) if topic is not None else registry.owner("file", file or "")
    if topic is None:
        if registered is not None:
            return _owner(registered, "file", name)
        if name is None:
            raise LogRefused(
                "a file does not tell whose budget it spends: name its data source with --source, the events topic "
                "that it was exported from, or the stream's own events topic for a file that came from nowhere else"
            )
        return name
    is_charged = registry.ledger_of(topic) in known
    if is_charged and name not in (None, topic):
        raise LogRefused(f"the topic {topic!r} is a data source of its own: leave --source {name} out")
    if registered is not None:
        return _owner(registered, f"topic {topic!r}", name)
    stream = topic.removesuffix(".events")
    if name is None and stream != topic and f"{stream}.epochs" in known and not is_charged:
        raise LogRefused(
            f"stream {stream!r} is charged to another data source than {topic!r}: name it with --source, as its "
            "setting source does"
        )
    return name or topic


def _owner(registered: Registered, what: str, name: str | None) -> str:
    if name not in (None, registered.source):
        raise LogRefused(
            f"the {what} spends the budget of {registered.source!r}, not of {name!r}: leave --source out"
        )
    return registered.source


def _check_charged(settings: Settings) -> None:
    """Refuse if the open epoch, which would count the events, is on another source's account.

    It may be so new that it is on record and not charged yet: it will be, before it releases anything.
    """
    journal = EpochJournal(settings)
    if journal.last is None or not journal.last_is_open:
        return
    epoch = journal.last.epoch
    if epoch.privacy["data_source"] != settings.data_source:
        raise LogRefused(
            f"epoch {epoch.number} of stream {settings.stream!r} is open and was not charged to "
            f"{settings.data_source!r}: replay into a stream of its own, or open another epoch first with "
            "`stream-dp worker --new-epoch`"
        )
