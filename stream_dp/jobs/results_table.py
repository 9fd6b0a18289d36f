"""What the jobs of a stream released, as one table: `stream_dp.results`."""

import msgspec
import pyarrow

from stream_dp.config.connections import Kafka
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.jobs.result import JobResult, decode_result
from stream_dp.kafka import log

_SCHEMA = pyarrow.schema(
    {
        "time": pyarrow.timestamp("ms", "UTC"),
        "id": pyarrow.string(),
        "job": pyarrow.string(),
        "mechanism": pyarrow.string(),
        "label": pyarrow.string(),
        "count": pyarrow.int64(),
        "low": pyarrow.int64(),
        "high": pyarrow.int64(),
        "counts_what": pyarrow.string(),
    }
)


def results(kafka: Kafka, stream: str) -> pyarrow.Table:
    """What one-shot jobs have released in `<stream>.results`, a row for each label, oldest job first.

    Columns: `time` of the request, `id`, `job` and `mechanism`, `label`, and where the mechanism releases counts,
    `count` with the ends of its 95% interval, `low` and `high`, and `counts_what`, which says what they leave out.
    Within a job labels are in the order of its result.  Jobs that released no label have no row.

        stream_dp.results("localhost:9092", "shop").to_pandas().query("id == 'best-sellers'")

    Raises `LogRefused` for a topic that is not there, or KafkaError.
    """
    topic = f"{stream}.results"
    log.check_topic(kafka, topic)
    held, found = log.offsets(kafka, topic), dict[tuple[str | None, str | None, int], pyarrow.RecordBatch]()
    for record in log.read(kafka, topic, held.first, held.end):
        try:
            part = decode_result(record.value or b"")
            if part.status == "done":  # a worker that died may have sent it before
                found.setdefault((part.id, part.digest, part.part), _rows(part))
        except (msgspec.DecodeError, RecursionError, ValueError):
            continue  # not the worker's
    return pyarrow.Table.from_batches(found.values(), _SCHEMA)


def _rows(part: JobResult) -> pyarrow.RecordBatch:
    number = len(part.labels)
    time = None if part.ts is None else milliseconds(parse_time(part.ts))
    same = {
        "time": time,
        "id": part.id,
        "job": part.job,
        "mechanism": part.mechanism,
        "counts_what": part.counts_what,
    }
    columns = {"label": part.labels, "count": part.counts, "low": part.low, "high": part.high}
    arrays = [
        pyarrow.array(columns.get(field.name) or [same.get(field.name)] * number, field.type)
        for field in _SCHEMA
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
