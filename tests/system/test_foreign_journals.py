"""Records in the journals that no worker wrote: passed over, or refused with a way out that is walked here."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec

from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.registry import default_ledger
from stream_dp.events.record import Record
from tests.system.example_events import some_events
from tests.system.streams import Stream
from tests.system.test_rolling import check_epochs, run_until, stream
from tests.system.waiting import GIVE_UP_SECONDS

__all__ = ["stream"]

OPERATIONS = Path(__file__).parents[2] / "docs/operations/operations.md"


def forged_epochs(stream: Stream) -> dict[bytes, str]:
    """Records that no worker of this stream writes into the topic of its epochs, with what is said of each."""
    opened = next(
        record.value
        for record in stream.records(stream.settings.epochs)
        if b"epoch-opened" in (record.value or b"")
    )
    assert opened is not None
    fields = msgspec.json.decode(opened)

    def with_epoch(**changed: object) -> bytes:
        return msgspec.json.encode(fields | {"epoch": fields["epoch"] | changed})

    return {
        b"hello": "is not an epoch's",
        with_epoch(number=7): "opens epoch 7, and epoch 1 is the last one",
        with_epoch(number=2): "opens epoch 2, and epoch 1 is the last one that was opened or is still open",
        with_epoch(
            privacy=fields["epoch"]["privacy"] | {"stream": "other"}
        ): "an epoch of the stream 'other'",
        b'{"type":"epoch-closed","number":7,"end_offset":0}': "is about epoch 7, which was not opened",
        b'{"type":"epoch-started","number":7}': "is about epoch 7, which was not opened",
        b'{"type":"epoch-closed","number":1,"end_offset":-1}': "closes epoch 1 before it begins",
    }


def test_a_stream_goes_on_and_rolls_over_records_that_no_worker_wrote(stream: Stream) -> None:
    stream.feed(some_events(10, seed=1))
    run_until(stream, 1, 10)
    own, foreign = stream.settings, forged_epochs(stream)
    stream.write(own.epochs, [Record(0, 1, None, value) for value in foreign])
    charged = stream.records(default_ledger(own.data_source))[-1].value or b""
    other = charged.replace(own.data_source.encode(), b"another.events")
    stream.write(default_ledger(own.data_source), [Record(0, 1, None, value) for value in (b"hello", other)])
    stream.feed(some_events(10, seed=2))
    run_until(stream, 2, 5)
    for why in ("is not an epoch's", "is not a record of a ledger"):
        assert why in stream.logged()
    assert check_epochs(stream) == [15, 15]
    with_reasons = EpochJournal(own).foreign
    assert len(with_reasons) == len(foreign)
    for found, expected in zip(with_reasons.values(), foreign.values(), strict=True):
        assert expected in found

    newer = charged.replace(b'"v":1', b'"v":2')
    stream.write(default_ledger(own.data_source), [Record(0, 1, None, newer)])
    place = len(stream.records(default_ledger(own.data_source))) - 1
    refusal = stream.refusal()
    assert (
        f"the record at offset {place} of the topic '{default_ledger(own.data_source)}' cannot be read"
        in refusal
    )
    heading = re.search(r'"(A record that[^"]+)"', refusal)
    assert heading is not None
    told = OPERATIONS.read_text().partition(f"## {heading[1]}\n")[2]
    program = re.search(r"```python\n(.*?)```", told, re.DOTALL)
    assert program is not None
    before = [
        (record.timestamp, record.value) for record in stream.records(default_ledger(own.data_source))[:place]
    ]
    subprocess.run(
        [sys.executable, "-c", program[1], own.kafka, default_ledger(own.data_source), str(place)],
        check=True,
        timeout=GIVE_UP_SECONDS,
    )
    assert [
        (record.timestamp, record.value) for record in stream.records(default_ledger(own.data_source))
    ] == before
    stream.feed(some_events(20, seed=3))
    run_until(stream, 3, 5)
    assert check_epochs(stream) == [15, 15, 15]
