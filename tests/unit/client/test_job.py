"""The handle on a job: its result, or why there is none. With a fake store."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import outlast
from outlast.base.clock import SystemClock
from outlast.client.job import Job
from outlast.errors import BadArguments, ConfigError, JobCancelled, JobFailed, JobNotFound
from outlast.insight.row import row_of
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import State
from outlast.model.pause import Pause
from outlast.payload.payloads import PLAIN
from outlast.store.rows import AttemptRow, StoredJob, WorkerRow
from outlast.store.stacks import Stack
from outlast.store.values import Enqueued
from tests.cases import each_case
from tests.unit.insight.rows_kit import job as job_row
from tests.unit.insight.rows_kit import worker

ROW = job_row(task="mail", queue="default", run_at=0.0, enqueued_at=0.0)


class FakeStore:
    """An inspector that shows one row after the other; the last one stays."""

    def __init__(self, *states: State, **last: Any) -> None:
        rows: list[StoredJob | None] = [
            msgspec.structs.replace(ROW, state=state) for state in states
        ]
        if last.pop("gone", False):
            rows.append(None)
        elif rows and rows[-1] is not None:
            rows[-1] = msgspec.structs.replace(rows[-1], **last)
        self.rows = rows
        self.ended: list[AttemptRow] = []
        self.inspector = self

    async def job(self, job_id: int) -> StoredJob | None:
        return self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        return self.ended

    async def workers(self) -> list[WorkerRow]:
        return [worker(tasks=["mail"])]

    async def pauses(self) -> list[Pause]:
        return []


class FakeHome:
    """Hands out the fake."""

    payloads = PLAIN

    def __init__(self, store: FakeStore) -> None:
        self.store = store

    async def ask(self, verb: Any) -> Any:
        return await verb(self.store)


class FakeClock(SystemClock):
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def boot(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr("outlast.client.job.SYSTEM", clock)
    return clock


def job_of(store: FakeStore, returns: Any = Any) -> Job[Any]:
    return Job(FakeHome(store), Enqueued(7, created=True), "mail", returns)  # type: ignore[arg-type]


def ended(outcome: str, message: str, crash: Crash | None = None) -> AttemptRow:
    return AttemptRow(
        job_id=7,
        token=1,
        number=1,
        outcome=outcome,
        charge="failure",
        started_at=0.0,
        ended_at=1.0,
        message=message,
        crash=crash,
    )


async def test_a_result_is_of_the_return_type(clock):
    store = FakeStore(State.QUEUED, State.RUNNING, State.COMPLETED, result="[1,2]")
    assert await job_of(store, tuple[int, int]).result() == (1, 2)
    assert clock.slept == pytest.approx([0.02, 0.03])


async def test_a_result_of_another_release_raises_its_own_error(clock):
    store = FakeStore(State.COMPLETED, result='"text"')
    with pytest.raises(BadArguments, match="the result does not fit int"):
        await job_of(store, int).result()


async def test_polling_slows_down_to_a_bound(clock):
    job = job_of(FakeStore(*[State.RUNNING] * 50, State.COMPLETED, result="1"))
    assert await job.result() == 1
    assert clock.slept[0] == 0.02
    assert clock.slept[:6] == sorted(clock.slept[:6])
    assert clock.slept[20:] == pytest.approx([0.25] * len(clock.slept[20:]))


@pytest.mark.parametrize(("timeout", "looks"), [(0, 1), (0.02, 2), (1, 10)])
async def test_a_wait_ends_with_its_timeout(clock, timeout, looks):
    job = job_of(FakeStore(State.RUNNING))
    with pytest.raises(TimeoutError, match=r"is running after .* s: `outlast why 7` says what"):
        await job.result(timeout=timeout)
    assert sum(clock.slept) == pytest.approx(timeout)
    assert len(clock.slept) == looks - 1


@pytest.mark.parametrize("timeout", [-1, "30", float("nan")])
async def test_a_timeout_that_is_no_span_of_time_is_refused(clock, timeout):
    with pytest.raises(ConfigError, match="timeout must be seconds"):
        await job_of(FakeStore(State.RUNNING)).result(timeout=timeout)


async def test_a_job_that_ended_by_the_timeout_is_returned(clock):
    assert await job_of(FakeStore(State.COMPLETED, result="1")).result(timeout=0) == 1


EXITED = Crash(kind=CrashKind.EXITED, message="exit code 1", exit_code=1)


@each_case(
    ("state", "ends", "error", "said"),
    [
        (
            State.DEAD,
            [ended("error", "ValueError: x"), ended("exited", "exit code 1", EXITED)],
            JobFailed,
            "is dead, exited: exit code 1",
        ),
        (State.DEAD, [ended("dead", "no such page")], JobFailed, "is dead: no such page"),
        (State.DEAD, [], JobFailed, "is dead"),
        (
            State.CANCELLED,
            [ended("cancelled", "not wanted")],
            JobCancelled,
            "was cancelled: not wanted",
        ),
    ],
)
async def test_a_job_without_a_result_says_why(clock, state, ends, error, said):
    store = FakeStore(State.QUEUED, state, started_at=1.0)
    store.ended = ends
    with pytest.raises(error, match=rf"job 7 \(mail\) {said}$") as caught:
        await job_of(store).result()
    if error is JobFailed:
        assert caught.value.report == (ends[-1].crash if ends else None)


async def test_a_deleted_job_is_not_found(clock):
    job = job_of(FakeStore(State.QUEUED, gone=True))
    with pytest.raises(JobNotFound, match="there is no job 7"):
        await job.result()
    with pytest.raises(JobNotFound):
        await job.refresh()
    with pytest.raises(JobNotFound):
        await job.status()


async def test_each_look_is_kept_as_the_row(clock):
    job = job_of(FakeStore(State.QUEUED, State.RUNNING))
    assert job.row is None
    assert await job.status() == "queued"
    assert (await job.refresh()).state is State.RUNNING
    assert job.row is not None
    assert repr(job) == "<Job 7: mail, running>"


def test_a_result_can_be_waited_for_in_plain_code(sqlite_url):
    app = outlast.App(sqlite_url)

    @app.task
    def mail() -> None:
        pass

    job = mail.enqueue_sync()
    with pytest.raises(TimeoutError):
        job.result_sync(0)
    job.cancel_sync()
    with pytest.raises(JobCancelled):
        job.result_sync(10)
    app.close_sync()


# ------------------------------------------------------------------------------ what is shown


FULL = msgspec.structs.replace(
    ROW,
    state=State.COMPLETED,
    args='{"to":"ann","copies":[1,2]}',
    result='{"sent":true}',
    checkpoint="7",
    checkpoint_at=1_700_000_001.5,
    stack_at=1_700_000_001.5,
    stack=Stack(token=1, asked=1, text="a stack"),
    run_at=1_700_000_000.25,
    enqueued_at=1_700_000_000.0,
    requeued_at=1_700_000_000.5,
    expires_at=1_700_000_009.0,
    started_at=1_700_000_001.0,
    ended_at=1_700_000_002.0,
    progress=Progress(0.5, "sending", "half"),
)


def test_a_row_has_values_and_aware_times():
    row = row_of(FULL)
    assert (row.args, row.result, row.checkpoint) == (
        {"to": "ann", "copies": [1, 2]},
        {"sent": True},
        7,
    )
    assert row.stack == "a stack"
    assert row.run_at == datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)
    times = [getattr(row, name) for name in row.__struct_fields__ if name.endswith("_at")]
    assert all(isinstance(at, datetime) and at.utcoffset() == timedelta() for at in times)
    assert (row.hard_deadline, row.state) == (None, "completed")


def test_a_row_can_be_encoded_by_msgspec_and_by_json():
    row = row_of(FULL)
    by_msgspec = json.loads(msgspec.json.encode(row))
    assert json.loads(json.dumps(row.to_dict())) == by_msgspec
    assert by_msgspec["args"] == {"to": "ann", "copies": [1, 2]}
    assert datetime.fromisoformat(by_msgspec["ended_at"]) == row.ended_at
    assert msgspec.json.decode(msgspec.json.encode(row), type=outlast.JobRow) == row


def test_every_field_of_the_store_is_on_the_row():
    assert outlast.JobRow.__struct_fields__ == (*StoredJob.__struct_fields__, "reason")


@each_case("seconds", [1e18, float("inf"), 253_402_300_800.0, -1e18, float("nan")])
def test_a_time_outside_the_calendar_is_the_last_or_first_date(seconds):
    at = row_of(msgspec.structs.replace(ROW, run_at=seconds)).run_at
    assert at.year == (1 if seconds < 0 else 9999)
    assert at.tzinfo is UTC


def test_stored_text_that_is_no_json_is_shown_unchanged():
    assert row_of(msgspec.structs.replace(ROW, args="{damaged")).args == "{damaged"


async def test_a_handle_keeps_what_it_has_seen_while_it_waits(clock):
    job = job_of(FakeStore(State.QUEUED, State.COMPLETED, result="5"))
    assert await job.result() == 5
    assert job.row is not None
    assert (job.row.state, job.row.result) == ("completed", 5)
    assert job.row is job.row
