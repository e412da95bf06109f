"""The flight record of a job: all that a store has about it, in one file, without its secrets.

It holds the rows as they are read, covered as the page covers them. So it is drawn by the code that
draws a job of a store, and its arguments and checkpoint can be tried again elsewhere.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

import msgspec

from outlast.errors import NotPermitted, UsageError, text_of
from outlast.insight.covering import Covering
from outlast.insight.explanation import JobDetails
from outlast.insight.hiding import Hiding
from outlast.insight.queries import read_details
from outlast.insight.verify import RULE_NAMES, HistoryFinding, findings_in
from outlast.model.job import State
from outlast.store.actions import ActionRow
from outlast.store.backend import describe_place
from outlast.store.limits import LimitRow
from outlast.store.logs import LogRow
from outlast.store.protocol import Store
from outlast.store.rows import Served, WorkerRow, WorkerStatus
from outlast.store.schedules import ScheduleRow

FORMAT = 1
ACTIONS_MAX = 200


class FlightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All about one job at one moment.

    Attributes:
        flight_record: the version of this form.
        store: where the job was, without logins; ``schema``: the migrations that it had.
        outlast, python: of the program that has recorded it.
        details: what ``outlast job`` shows, with the workers that ran the job, and their settings
            and releases; of a waiting job with all workers.
        logs: the kept lines of attempts. actions: what people did with the job.
        limits: the limits that the job is under. schedule: the schedule that it comes from.
        rules: what ``outlast verify`` has checked; ``findings``: what it found about this job.
        hidden: the names of the arguments with hidden parts; ``hides_checkpoint``: whether the
            checkpoint has hidden parts.
    """

    flight_record: int = FORMAT
    store: str
    schema: list[int]
    outlast: str
    python: str
    details: JobDetails
    logs: list[LogRow] = []
    actions: list[ActionRow] = []
    limits: list[LimitRow] = []
    schedule: ScheduleRow | None = None
    rules: list[str] = []
    findings: list[HistoryFinding] = []
    hidden: list[str] = []
    hides_checkpoint: bool = False


async def read_flight_record(
    store: Store, job_id: int, now: float, hiding: Hiding, version: str
) -> FlightRecord | None:
    """Return the record of a job, with all matches hidden; None: there is no such job. ``version``:
    that of Outlast here. Raises the store's errors."""
    view = Covering(hiding, payload=True).view(store)
    plain = await store.inspector.job(job_id)
    details = await read_details(view, job_id, now)
    if plain is None or details is None:
        return None
    row, inspector = details.row, view.inspector
    try:
        actions = await inspector.actions(ACTIONS_MAX, job_id=job_id)
    except NotPermitted:  # a role that only enqueues
        actions = []
    page = await inspector.history(job_id - 1, 1)
    is_whole = bool(page.jobs) and page.jobs[0].id == job_id
    schedule = row.policy.schedule
    return FlightRecord(
        store=describe_place(store.url),
        schema=[step.number for step in await store.migrations() if step.applied_at is not None],
        outlast=version,
        python=platform.python_version(),
        details=msgspec.structs.replace(details, served=None, workers=_its_workers(details)),
        logs=await inspector.logs(job_id),
        actions=list(actions),
        limits=[each for each in await inspector.limits() if each.name in row.limits],
        schedule=None if schedule is None else await inspector.schedule(schedule),
        rules=list(RULE_NAMES),
        findings=[one for one in findings_in(page) if one.job_id == job_id] if is_whole else [],
        hidden=_hidden_names(plain.args, row.args),
        hides_checkpoint=plain.checkpoint != row.checkpoint,
    )


def _its_workers(details: JobDetails) -> Sequence[WorkerRow]:
    """Return the workers that ran the job; all of them if it waits for one."""
    if details.row.state is State.QUEUED:
        return details.workers
    ids = {details.row.worker_id, *(one.worker_id for one in details.attempts)}
    return [one for one in details.workers if one.id in ids]


def _hidden_names(plain: str, covered: str) -> list[str]:
    """Return the names of the arguments that differ once they are covered."""
    if plain == covered:
        return []
    names = _object(plain)
    shown = _object(covered)
    return sorted(name for name, value in names.items() if shown.get(name) != value or not shown)


def _object(text: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def encode_record(record: FlightRecord) -> bytes:
    """Return a record as the content of its file: JSON, for people and programs."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode_record(data: bytes, name: str) -> FlightRecord:
    """Return the record that a file of this name holds. UsageError if it holds none, or one of a
    later form."""
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "flight_record" not in head:
            raise UsageError(
                f"{name} is no flight record: `outlast job ID --record FILE` makes one"
            )
        if msgspec.json.decode(head["flight_record"]) != FORMAT:
            raise UsageError(
                f"{name} was recorded by a later release of Outlast: show it with that"
            )
        record = msgspec.json.decode(data, type=FlightRecord)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{name} cannot be read as a flight record: {text_of(error)}") from error
    active = [one for one in record.details.workers if one.status is WorkerStatus.ACTIVE]
    served = Served((one.queues, one.tasks) for one in active)
    details = msgspec.structs.replace(record.details, served=served)
    return msgspec.structs.replace(record, details=details)
