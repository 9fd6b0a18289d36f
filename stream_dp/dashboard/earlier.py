"""How counts grew in epochs that are over: read from the topic once, and the same for all who ask."""

from threading import Lock

from stream_dp.dashboard.archive import Archive
from stream_dp.dashboard.history import History

_MOST_EPOCHS = 8
_LAST = 2**62  # past every round


class EarlierEpochs:
    """Safe to use from several threads; answers wait for Kafka."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._lock = Lock()
        self._found: dict[tuple[str, int], History] = {}

    def history(self, newest: str, epoch: int) -> History:
        """The history of an epoch before the one of the nonce `newest`; empty if the topic holds nothing of it.

        Raises KafkaError or `LogRefused`.
        """
        with self._lock:
            place = newest, epoch
            if place not in self._found:
                self._found[place] = self._read(epoch)
                if len(self._found) > _MOST_EPOCHS:
                    del self._found[next(iter(self._found))]
            return self._found[place]

    def _read(self, epoch: int) -> History:
        history = History()
        last = self._archive.find(_LAST, epoch)
        if last is None:
            return history
        history.add(last)
        for number in history.missing(last.round):
            release = self._archive.find_near(number, epoch)
            if release is not None and release.nonce == last.nonce:
                history.add(release)
        return history
