"""What the tests of a worker's parts share: claims, and a scripted pool and store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from outlast import events
from outlast.errors import BadData
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy
from outlast.model.lease import DeathCause, LeaseTerms
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition
from outlast.store.values import (
    Answer,
    Claimed,
    ClaimRequest,
    Exchanged,
    NamedStep,
    Peek,
    Report,
    Save,
    Snapshot,
    StepFound,
    WorkerRef,
    WorkerSeen,
)
from outlast.worker.base import Declared, Lease, Running
from outlast.worker.claims.evidence import Evidence
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.pacing import TripPlan, WakeTurns
from outlast.worker.runners.process import Death
from outlast.worker.runners.responsiveness import Responsiveness
from outlast.worker.service import Nudge
from tests.manual_clock import ManualClock

COMPLETED = Outcome(kind=OutcomeKind.COMPLETED, result="null")
RELEASED = Outcome(kind=OutcomeKind.RELEASED)


def claimed(token: int, task: str = "t", **fields: Any) -> Claimed:
    values: dict[str, Any] = {
        "job_id": token,
        "token": token,
        "task": task,
        "queue": "default",
        "args": "{}",
        "number": 1,
        "failures": 0,
        "losses": 0,
        "policy": Policy(),
        **fields,
    }
    return Claimed(**values)


def crash(kind: CrashKind = CrashKind.ERROR, **fields: Any) -> Outcome:
    report = Crash(kind=kind, **{"message": "boom", **fields})
    return Outcome(kind=OutcomeKind.CRASHED, crash=report)


def death(**fields: Any) -> Death:
    values: dict[str, Any] = {
        "pid": 100,
        "exit_code": None,
        "signal": None,
        "rss_peak_bytes": 1,
        "cpu_seconds": 0.1,
        "stacks": "",
        "output": [],
        **fields,
    }
    return Death(**values)


def new_plan(clock: ManualClock, *, poll: float = 1.0, **options: Any) -> TripPlan:
    """``options``: of the plan, such as its ``wakeup``."""
    turns = WakeTurns(FakeOwner(), [], clock)
    return TripPlan(clock, poll=poll, look_every=2.0, turns=turns, **options)


def new_in_flight(
    clock: ManualClock | None = None, plan: TripPlan | None = None, **evidence: Any
) -> InFlight:
    """``evidence``: of the worker, such as its ``redact``."""
    clock = clock or ManualClock()
    evidence = {"worker": "w1", "host": "h1", **evidence}
    return InFlight(clock, plan or new_plan(clock), Evidence(clock, **evidence))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(boot=0.0)


@pytest.fixture
def in_flight(clock: ManualClock) -> InFlight:
    return new_in_flight(clock)


def lease_of(me: WorkerRef | None = None) -> Lease:
    """The lease of a worker with this row; without one, of worker 1."""
    lease = Lease(LeaseTerms(), ManualClock())
    lease.me = me or WorkerRef(1, 1)
    return lease


class Idle:
    """A duty that has nothing to do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nudge = Nudge()

    async def run_once(self) -> float | None:
        return None


class FakeOwner(Lease):
    """A worker, and its lease, that its pool, registration and reaper may tell anything."""

    def __init__(self) -> None:
        super().__init__(LeaseTerms(), ManualClock())
        self.trusted = True
        self.lease_checks = 0
        self.begun: list[int] = []
        self.changes = 0
        self.failures: list[BaseException] = []
        self.looks_for_work = 0
        self.looks: list[Snapshot] = []
        self.peeks: list[Peek] = []
        self.reclaimed: list[Transition] = []
        self.pool: Any = None
        self.me = WorkerRef(1, 1)

    @property
    def registration(self) -> FakeOwner:
        return self

    def is_trusted(self) -> bool:
        return self.trusted

    def check_lease(self) -> None:
        self.lease_checks += 1

    def note_begin(self, token: int) -> None:
        self.begun.append(token)

    def note_pool_change(self) -> None:
        self.changes += 1

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def look_for_work(self) -> None:
        self.looks_for_work += 1

    def take_peek(self, peek: Peek) -> None:
        self.peeks.append(peek)

    def take_look(self, look: Snapshot) -> None:
        self.looks.append(look)

    def note_reaped(self, gone: WorkerSeen, cause: DeathCause) -> None:
        """Nothing watches."""

    def note_reclaimed(self, applied: list[Transition]) -> None:
        self.reclaimed += applied

    def note_registration(self) -> None:
        """Nothing watches."""

    async def hand_in_the_rest(self) -> bool:
        """There is none."""
        return True

    def give_up(self, error: Exception, seconds: float) -> None:
        self.failures.append(error)


@contextmanager
def heard() -> Iterator[list[str]]:
    """The names of the events that are emitted in the block."""
    names: list[str] = []
    end = events.subscribe(lambda name, fields: names.append(name))
    try:
        yield names
    finally:
        end()


@contextmanager
def heard_fields() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The events that are emitted in the block, with their fields."""
    told: list[tuple[str, dict[str, Any]]] = []
    end = events.subscribe(lambda name, fields: told.append((name, fields)))
    try:
        yield told
    finally:
        end()


class FakePool:
    """A pool without processes: its requests are set by the test, and it records its calls."""

    exclusive_from = 2

    def __init__(self, in_flight: InFlight, slots: int = 10) -> None:
        self.starter = self.control = self
        self.keeper = Idle("pool")
        self.watchdog = Idle("watchdog")
        self.in_flight = in_flight
        self.slots = slots
        self.has_started = self.is_ready = True
        self.has_recalled = True
        self.recalled: list[int] = []  # at the last call
        self.placed: list[int] = []
        self.stopped: list[tuple[int, str]] = []
        self.killed: list[int] = []
        self.shown: list[int] = []
        self.stacks: dict[int, str] = {}  # by token
        self.killed_processes: list[tuple[int, str]] = []
        self.locking: list[tuple[int, int | None]] = []
        self.killed_all: list[str] = []
        self.pulses: dict[int, Responsiveness] = {}
        self.ahead = 0
        self.given_back: list[str] = []
        self.unkillable: set[int] = set()  # attempts that go on when they are killed
        self.given_up: list[set[int]] = []
        self.forgotten: set[int] = set()  # attempts without a runner
        self.asks_alone = False  # for jobs that need the whole worker

    def tasks(self) -> list[str]:
        return ["t"]

    def lacks(self) -> dict[str, list[str]]:
        return {}

    def declared(self) -> Declared:
        return Declared()

    def make_requests(self, unanswered: int) -> list[ClaimRequest]:
        free = self.slots - len(self.in_flight.running) - unanswered
        return [ClaimRequest(["t"], free)] if free > 0 else []

    def make_alone_requests(self) -> list[ClaimRequest]:
        return [ClaimRequest(["t"], 1, solo=2)] if self.asks_alone else []

    def start(self, attempts: list[Running]) -> None:
        self.placed += [running.token for running in attempts]

    def count_ahead(self) -> int:
        return self.ahead

    def give_back(self, reason: str) -> None:
        self.given_back.append(reason)

    def give_back_late(self) -> None:
        """Return 0: nothing waits for a slot."""

    def count_waiting(self) -> int:
        return 0

    def stop(self, token: int, reason: str) -> None:
        running = self.in_flight.running.get(token)
        if running is not None and running.stop_reason is None:
            running.stop_reason, running.stopped_at = reason, self.in_flight._clock.boot()
            self.stopped.append((token, reason))

    def recall(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> bool:
        if which is None:
            self.given_back.append(reason)
        else:
            attempts = self.in_flight.running.values()
            self.recalled = [each.token for each in attempts if which(each.claimed)]
        return self.has_recalled

    async def find_stack(self, token: int) -> str:
        self.shown.append(token)
        return self.stacks.get(token, "")

    def kill(self, token: int) -> None:
        self.killed.append(token)

    def kill_process(self, pid: int, reason: str) -> None:
        self.killed_processes.append((pid, reason))

    def kill_locking(self, pid: int, waits: int | None) -> None:
        self.locking.append((pid, waits))

    def look_at_loops(self, still: object) -> None:
        """Do nothing: there are no runners."""

    def has(self, token: int) -> bool:
        return token not in self.forgotten

    def responsiveness_of(self, token: int) -> Responsiveness | None:
        return self.pulses.get(token)

    def end_all(self, reason: str, spare: Collection[int] = ()) -> None:
        self.killed_all.append(reason)
        for token in self.in_flight.running.keys() - set(spare) - self.unkillable:
            self.in_flight.end(token, RELEASED)

    def give_up(self, tokens: Collection[int]) -> None:
        self.given_up.append(set(tokens))

    async def close(self) -> None:
        """Do nothing: there is nothing to end."""


Scripted = Exchanged | BaseException | Callable[[], Exchanged]


class FakeStore:
    """A store that answers from a script, and accepts everything once that has run out.

    Each call is noted in ``calls`` as (verb, what was handed in).
    """

    def __init__(self) -> None:
        self.script: list[Scripted] = []
        self.calls: list[tuple[str, Any]] = []
        self.saves: list[BaseException | list[Answer]] = []
        self.poison: set[int] = set()  # tokens whose crash-free ends are refused as bad data
        self.unknown: list[tuple[int, int]] = []  # released by the next reconcile
        self.asked_about: list[list[int]] = []  # which of them are superseded
        self.lost: set[int] = set()  # tokens that another worker has closed
        self.reports: list[Report] = []
        self.writer: int | None = None  # holds the lock of the file

    def why_late(self) -> str:
        return ""

    def find_writer(self) -> int | None:
        return self.writer

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        self.calls.append(("exchange", ([end.token for end in ended], list(requests))))
        if any(end.token in self.poison and end.outcome != "rejected_result" for end in ended):
            raise BadData("a NUL byte")
        if self.script:
            step = self.script.pop(0)
            if isinstance(step, BaseException):
                raise step
            return step if isinstance(step, Exchanged) else step()
        return accepted(len(ended))

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[tuple[int, int]]:
        self.calls.append(("reconcile", set(held)))
        unknown, self.unknown = self.unknown, []
        return unknown

    async def superseded(self, attempts: Collection[tuple[int, int]]) -> list[int]:
        self.asked_about.append(sorted(token for _, token in attempts))
        return [token for _, token in attempts if token in self.lost]

    async def drop_connections(self) -> None:
        self.calls.append(("drop_connections", None))

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        self.calls.append(("checkpoint", [(save.token, save.number) for save in saves]))
        step = self.saves.pop(0) if self.saves else [Answer.ACCEPTED] * len(saves)
        if isinstance(step, BaseException):
            raise step
        return step

    async def keep_steps(self, steps: Sequence[NamedStep]) -> list[Answer]:
        self.calls.append(("keep_steps", [(step.token, step.name) for step in steps]))
        step = self.saves.pop(0) if self.saves else [Answer.ACCEPTED] * len(steps)
        if isinstance(step, BaseException):
            raise step
        return step

    async def find_steps(self, steps: Sequence[NamedStep]) -> list[StepFound]:
        self.calls.append(("find_steps", [(step.token, step.name) for step in steps]))
        return [StepFound(Answer.ALREADY, '"kept"')] * len(steps)

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        self.calls.append(("progress", [report.token for report in reports]))
        self.reports += reports
        return [Answer.ACCEPTED] * len(reports)


def accepted(count: int, **fields: Any) -> Exchanged:
    return Exchanged(valid=True, answers=[Answer.ACCEPTED] * count, **fields)
