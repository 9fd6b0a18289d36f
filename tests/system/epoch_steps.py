"""What tests of epochs do and look at: run one, lose its state, read its charges and its releases."""

from typing import Any

from stream_dp.privacy.composition import Charge
from stream_dp.releases.release import Release, decode_release
from stream_dp.store.ledger import Ledger
from stream_dp.workers.resume import NewEpoch
from tests.system.streams import Stream

REFUSED = 2


PRIVATE_TO_A_WORKER = {b"fence"}


def state_keys(stream: Stream) -> dict[bytes, bytes]:
    """What Redis holds of the stream, by the last part of the key; without what differs between workers."""
    prefix = len(f"stream_dp:{{{stream.settings.stream}}}:")
    return {
        name[prefix:]: value
        for name, value in stream.redis_keys().items()
        if name[prefix:] not in PRIVATE_TO_A_WORKER
    }


def lose_state(stream: Stream, key_too: bool = False) -> None:
    with stream.redis() as client:
        for name in stream.redis_keys():
            if key_too or not name.endswith(b":key"):
                client.delete(name)


def charges(stream: Stream) -> list[Charge]:
    with stream.redis() as client:
        return Ledger(client, stream.settings.data_source).charges()


def releases(stream: Stream, epoch: int) -> list[Release]:
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return [release for release in found if release.epoch == epoch]


def run_epoch(
    stream: Stream, until_round: int, epoch: int, wish: NewEpoch | None = None, **changed: Any
) -> None:
    """Run a worker until `epoch` has released `until_round`."""
    worker = stream.start(new_epoch=wish, **changed)
    stream.wait_until_logged(f"epoch {epoch}, round")
    stream.wait_until(lambda: len(releases(stream, epoch)) >= until_round, worker)
    stream.stop(worker)
