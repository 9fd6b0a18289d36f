"""Schedules: a request with `every` becomes one plain request in every period, written into `<stream>.jobs`.

Its id ends in the end of the period, so that whoever asks for it twice asks for one job.  Periods are counted from
1970 in UTC.  A source without `from` and `to` means the records of the period itself: in the unit `event` such jobs
read disjoint offsets, and the ledger composes them in parallel.
"""

from collections.abc import Iterator

import msgspec

from stream_dp.config.times import iso_timestamp
from stream_dp.jobs.request import JobRequest, decode_request
from stream_dp.jobs.store import Schedule

_MOST_AT_ONCE = 100


def due(schedule: Schedule, now: float) -> Iterator[tuple[JobRequest, Schedule]]:
    """The requests for the periods that have ended, oldest first, each with the schedule after it.

    At most 100: after a long pause the rest follows the next time.
    """
    template = decode_request(schedule.request)
    if not isinstance(template, JobRequest) or template.every is None:
        return
    end = schedule.last
    for _ in range(_MOST_AT_ONCE):
        begin, end = end, end + template.every
        if end > now:
            return
        yield _for_period(template, begin, end), msgspec.structs.replace(schedule, last=end)


def _for_period(template: JobRequest, begin: int, end: int) -> JobRequest:
    source = template.source
    if source.file is None and source.start is None and source.to is None:
        source = msgspec.structs.replace(
            source, start=iso_timestamp(begin * 1000), to=iso_timestamp(end * 1000)
        )
    job_id = f"{template.id}@{iso_timestamp(end * 1000)[:19]}Z"
    return msgspec.structs.replace(template, id=job_id, every=None, source=source)
