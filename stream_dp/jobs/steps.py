"""The steps of one job, each by itself: prepare, charge, read, compute.  Who calls them: `runner.py` and the commands.

The order is the guarantee: what a job costs is known from its request alone and is charged before the first record is
read; from then on nothing in the data makes the job fail, unless it outgrows memory or disk, or 2^31 users or labels.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from stream_dp.config.connections import Kafka
from stream_dp.config.events_section import EventsSection
from stream_dp.epochs.registry import Registered
from stream_dp.events.stored_files import NoSuchObject, State
from stream_dp.jobs.books import Books, Charged
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.engine import Engine, ThisProcess
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import BadRequest, JobRequest, Source, Unit
from stream_dp.jobs.result import JobResult, ResultCost, done
from stream_dp.jobs.rows import Progress
from stream_dp.jobs.source_file import RowFile, find_file, locate
from stream_dp.jobs.topic_rows import TopicRange, find_again, find_range, mapping_of
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.keyed_noise import key_check, subkey
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.vector import Vector
from stream_dp.store import pay_what_you_get
from stream_dp.store.ledger import ChargeConflict, LedgerRefused
from stream_dp.store.ledger_records import Marks

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """Where jobs run.  `events` is the stream's topic, if there is a stream, and `data_source` what its settings say.

    `mapping`: how the settings say that the records of `events` are read.
    `engine`: where rows are read and counted.
    `files`: whether files may be read; where a `folder` is given, only from below it.
    """

    kafka: Kafka
    events: str | None = None
    data_source: str | None = None
    folder: Path | str | None = None
    files: bool = True
    mapping: EventsSection | None = None
    engine: Engine = field(default_factory=ThisProcess)


@dataclass(frozen=True)
class Prepared:
    """A request that can be served: `name` is the source whose ledger it charges, `place` what it reads.

    `file_state`: what a file was like when its content was found to be the source's.
    """

    request: JobRequest
    calibrated: Calibrated
    name: str
    unit: Unit
    place: TopicRange | RowFile
    file_state: State | None = None

    @property
    def chosen(self) -> dict[str, int | float | str]:
        """What was chosen for parameters that the request leaves open."""
        given = self.request.parameters
        return {name: value for name, value in self.calibrated.parameters.items() if name not in given}

    @property
    def offsets(self) -> tuple[int, int | None, Vector, Vector]:
        """Offsets of the charged source that are read, as a charge has them: begin and end, then of further partitions.

        All of them where what is read has no offsets of the source.
        """
        place = self.place
        if isinstance(place, TopicRange) and place.topic == self.name:
            return place.firsts[0], place.ends[0], place.firsts[1:], place.ends[1:]
        return 0, None, (), ()


def owner_of(source: Source, site: Site, books: Books) -> Registered:
    """Whose budget a source spends, which the books alone decide.  Raises `BadRequest`."""
    topic = source.topic or site.events
    if source.file is None and topic is None:
        raise BadRequest("the request names nothing to read: give a topic or a file")
    if source.file is not None and not site.files:
        raise BadRequest("this worker reads no files: start it with a folder of files that jobs may read")
    try:
        if source.file is None:
            what = f"the topic {topic!r}"
            found = books.owner_of_topic(str(topic), site.data_source if topic == site.events else None)
        else:
            what = f"the file {source.file!r}"
            found = books.owner_of_file(locate(source, site.folder), source)
    except (LedgerRefused, NoSuchObject) as refused:
        raise BadRequest(str(refused)) from None
    if source.name not in (None, found.source):
        raise BadRequest(
            f"{what} spends the budget of {found.source!r}, not of {source.name!r}: leave the name out, or give that "
            "one"
        )
    return found


def _unit_of(owner: Registered) -> Unit:
    """What a job protects that spends the owner's budget.  Raises `BadRequest`."""
    if owner.unit == "user-day":
        raise BadRequest(
            f"the data source {owner.source!r} counts per user and day, and a job reads many days of a user: run it "
            "on data of a source of their own that counts per user"
        )
    return owner.unit


def prepare(
    request: JobRequest,
    site: Site,
    books: Books,
    admitted: TopicRange | None = None,
    chosen: Mapping[str, int | float | str] | None = None,
) -> Prepared:
    """Everything that is known before data is read; raises `BadRequest`, which depends on public things only.

    `admitted` and `chosen`: the range that the source meant, and what was chosen for parameters that the request leaves
    open, when the job was asked for the first time.
    """
    calibrated = calibrate(request, chosen)
    site.engine.check(request.mechanism, calibrated)
    source = request.source
    place: TopicRange | RowFile
    if source.file is None:
        owner = owner_of(source, site, books)
        topic = source.topic or site.events or ""
        mapping = mapping_of(topic, site.mapping if topic == site.events else None)
        if admitted is None:
            place = find_range(site.kafka, topic, source, mapping)
        else:
            place = find_again(site.kafka, replace(admitted, topic=topic, mapping=mapping))
    else:
        before = locate(source, site.folder).state if site.files else None
        owner = owner_of(source, site, books)
        place = find_file(source, request.unit or _unit_of(owner), site.folder)
        if place.state != before:
            raise BadRequest(f"the file {source.file!r} is being written: ask again when it is whole")
    unit = _unit_of(owner)
    if request.unit not in (None, unit):
        raise BadRequest(
            f"the data source {owner.source!r} counts per {owner.unit}, and the two units cannot be added: leave the "
            f"unit out of the request, or give {owner.unit} instead of {request.unit}"
        )
    if unit == "event" and source.user is not None and request.job != "label-votes":
        raise BadRequest(
            f"the data source {owner.source!r} counts per event, so each row is protected by itself and the column of "
            "users would not be read: leave out --user, or user in the source of a request, if that is what you mean; "
            "to protect people, name a source that counts per user"
        )
    if request.job == "label-votes" and unit != "user":
        raise BadRequest(
            f"the data source {owner.source!r} counts per {unit}, so nothing would bound the votes of one teacher: "
            "read one that counts per user"
        )
    file_state = place.state if isinstance(place, RowFile) else None
    known = msgspec.structs.replace(request, unit=unit)
    return Prepared(known, calibrated, owner.source, unit, place, file_state)


def charge_of(prepared: Prepared, charge_id: str, key: bytes) -> Charge:
    """What the job costs its source.  The digest binds the job's noise key: one charge pays for one noise only."""
    request, cost = prepared.request, prepared.calibrated.cost
    first, end, further_offsets, further_ends = prepared.offsets
    return Charge(
        id=charge_id,
        what=f"{request.job} by {request.mechanism}, job {request.id}",
        unit=prepared.unit,
        rho=cost.rho,
        delta=cost.delta,
        first_offset=first,
        end_offset=end,
        further_offsets=further_offsets,
        further_ends=further_ends,
        digest=_digest(request, key),
        exact=(prepared.calibrated.epsilon, prepared.calibrated.delta),
        loss=cost.loss,
    )


def pay(prepared: Prepared, charge_id: str, key: bytes, journaled: Charged, asked: int | None = None) -> None:
    """Charge the job, or take the marks that it may need from the budget it names.  However often, it pays once.

    `asked`: when it was asked for, in milliseconds, else now.  Raises `LedgerRefused`.
    """
    charge, shared = charge_of(prepared, charge_id, key), prepared.calibrated.shared
    if shared is None:
        try:
            journaled.charge(charge, at=asked)
        except ChargeConflict:
            raise ChargeConflict(
                f"the id {prepared.request.id!r} was charged before, for other parameters or with noise that Redis has "
                "lost since, so nothing is released: use a new id, which is charged"
            ) from None
        return
    budget = pay_what_you_get.charge_of(budget_id(shared.name), shared.opened, unit=charge.unit)
    try:
        journaled.charge(budget, Marks(shared.opened, {}), asked)
    except ChargeConflict:
        raise ChargeConflict(
            f"the pay-what-you-get budget {shared.name!r} was opened with other numbers: give the same unit, epsilon, "
            "delta, marks and queries, or the name of a new budget"
        ) from None
    query = _query_id(prepared.request, charge_id, key)
    reserved = pay_what_you_get.reserve(journaled.current(), budget.id, query, shared.k)
    journaled.note_query(budget.id, query, reserved, asked)


def is_paid(prepared: Prepared, charge_id: str, key: bytes, journaled: Charged) -> bool:
    """Whether `pay` has been called with these."""
    stored, shared = journaled.current().state().stored, prepared.calibrated.shared
    if shared is None:
        return charge_id in stored
    budget = stored.get(budget_id(shared.name))
    query = _query_id(prepared.request, charge_id, key)
    return budget is not None and budget.marks is not None and query in budget.marks.queries


def settle(
    request: JobRequest,
    charge_id: str,
    key: bytes,
    result: JobResult,
    journaled: Charged,
    asked: int | None = None,
) -> None:
    """Give back the marks that a stored result did not need; a job with a charge of its own has none.

    `asked`: when it was asked for, in milliseconds, else now.  Raises `LedgerRefused`.
    """
    if request.budget is None or result.status != "done":
        return
    budget, query = budget_id(request.budget), _query_id(request, charge_id, key)
    marks = len(result.labels) + bool(result.bottom)
    settled = pay_what_you_get.spend(journaled.current(), budget, query, marks)
    journaled.note_query(budget, query, settled, asked)


def budget_id(name: str) -> str:
    """The id of the charge that opens a pay-what-you-get budget."""
    return f"budget/{name}"


def _query_id(request: JobRequest, charge_id: str, key: bytes) -> str:
    """With another noise key it is another query, which takes marks of its own."""
    return f"{charge_id} {_digest(request, key)}"


def _digest(request: JobRequest, key: bytes) -> str:
    return blake2b(f"{request.digest} {key_check(key)}".encode(), digest_size=16).hexdigest()


def compute(prepared: Prepared, site: Site, key: bytes, cost: ResultCost, progress: Progress) -> JobResult:
    """Read the source and run the mechanism with noise from `key`, which serves this job alone.

    Raises KafkaError, `BadRequest` where a file is not the one that was registered any more, and whatever `progress`
    raises.
    """
    request, place = prepared.request, prepared.place
    changed = BadRequest(
        f"the file {request.source.file!r} was written while it was read, so nothing is released; what was charged "
        "stays charged"
    )
    try:
        rows, seen = site.engine.rows(place, prepared.unit, site.kafka, progress)
        noise = OneShotNoise(subkey(key, b"job " + request.digest.encode()))
        found = prepared.calibrated.run(rows, noise)
        if isinstance(place, RowFile) and place.state != prepared.file_state:
            raise changed
    except NoSuchObject:
        raise changed from None
    logger.info(
        "job %s: %d rows, and left out %d without a user and %d malformed ones (private numbers)",
        request.id,
        seen.rows,
        seen.without_user,
        seen.malformed,
    )
    labels = prepared.calibrated.bins or []
    names = [labels[item] for item in found.items] if labels else rows.names(found.items)
    result = done(request, prepared.calibrated, cost, found, names)
    return located(result, prepared)


def located(result: JobResult, prepared: Prepared) -> JobResult:
    """The result with what it says of its source: the ledger that it charges and the offsets that it read.

    Offsets of a topic that is derived from the source may depend on what its records hold.
    """
    result = msgspec.structs.replace(result, source=prepared.name)
    place = prepared.place
    if not isinstance(place, TopicRange) or place.topic != prepared.name:
        return result
    return msgspec.structs.replace(
        result,
        first_offset=place.firsts[0],
        end_offset=place.ends[0],
        further_offsets=place.firsts[1:],
        further_ends=place.ends[1:],
    )
