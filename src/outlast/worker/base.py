"""Defines the protocols between the parts of a worker.

A worker makes its parts, which report to it (``Owner``). A pool has two kinds of users: the
exchange, which fills it (``AttemptStarter``), and the parts that end attempts (``AttemptControl``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgspec

from outlast.base.clock import Clock
from outlast.model.crash import Progress
from outlast.model.lease import PAUSE_BEATS, PAUSE_SECONDS, DeathCause, LeaseTerms, Trust
from outlast.model.lifecycle import Transition
from outlast.runner.protocol import Hello
from outlast.store.limits import CodeLimits
from outlast.store.schedules import NewSchedule
from outlast.store.values import Claimed, ClaimRequest, Peek, Snapshot, WorkerRef, WorkerSeen
from outlast.worker.service import Duty

SHOW_SECONDS_MAX = 2.0  # for a runner to show its stacks
KILL_SECONDS = 15.0  # for a killed runner to be gone, its group and its pipes included


WAITS = "it has not begun: it was claimed, and waits for a free runner of its worker"


class Running(msgspec.Struct, eq=False, gc=False):
    """An attempt that this worker runs. Times are on the worker's boot clock, in seconds."""

    claimed: Claimed
    token: int  # its fencing token
    started_at: float  # when it was claimed, then when it was given to its runner
    last_sign_at: float
    losses: int
    pid: int | None = None
    release: str | None = None  # release of the application in its runner
    python: str | None = None
    progress: Progress | None = None
    saved_at: float | None = None
    ended_at: float = 0.0
    began_at: float | None = None  # when its code began; only for attempts with a limit
    still: float = 0.0  # seconds in which neither this worker nor its runner ran
    is_over: bool = False  # its function has ended; hooks around it may still run
    # its last checkpoint (a number) or step (a name) that the store has not answered
    saving: int | str | None = None
    stack: str = ""  # where it stood when it reached a limit
    shown: str | None = None  # where its coroutine stood when a person asked; None: no answer yet
    output: list[str] | None = None  # its last lines, if it ended badly
    stop_reason: str | None = None
    stopped_at: float | None = None

    def credit(self, seconds: float, now: float, most: float = math.inf) -> None:
        """Advance its clocks by time in which it was kept from running: that of its timeout to at
        most ``most`` seconds after its start, and time in which nothing ran."""
        if self.began_at is not None:
            to = min(self.began_at + seconds, now, self.started_at + self.still + most)
            self.began_at = max(self.began_at, to)
        self.last_sign_at = max(self.last_sign_at, min(self.last_sign_at + seconds, now))

    def leave_out(self, since: float, until: float, now: float) -> None:
        """Leave out of its limits a span in which neither this worker nor its runner ran."""
        if (seconds := until - max(since, self.started_at)) > 0:
            self.still += seconds
            self.credit(seconds, now)


class Declared(msgspec.Struct, frozen=True):
    """What the code declares beside its tasks. ``uses``: task -> the units that an attempt uses."""

    uses: Mapping[str, Mapping[str, int]] = {}
    schedules: list[NewSchedule] = []
    limits: CodeLimits = CodeLimits()

    @classmethod
    def of(cls, hello: Hello) -> Declared:
        """Return what a runner has announced."""
        uses = {info.name: info.uses for info in hello.tasks if info.uses}
        return cls(uses, hello.schedules, hello.limits)


def no_tether(boottime: float) -> None:
    """Do nothing: there are no processes to hold."""


class AttemptStarter(Protocol):
    """Makes the claim requests for what can be started, and starts claimed attempts. It needs the
    whole worker for jobs with a ``solo`` of ``exclusive_from`` or more."""

    exclusive_from: int

    def tasks(self) -> list[str]:
        """Return the names under which jobs can be taken now."""
        ...

    def lacks(self) -> dict[str, list[str]]:
        """Return the tasks that may not be served here -> what this worker lacks for them."""
        ...

    def declared(self) -> Declared:
        """Return what the code declares beside its tasks."""
        ...

    def make_requests(self, unanswered: int) -> list[ClaimRequest]:
        """Return requests for the jobs that could start now, or soon; ends that the store has not
        answered still hold their slots."""
        ...

    def make_alone_requests(self) -> list[ClaimRequest]:
        """Return requests for one job that must have this worker to itself."""
        ...

    def start(self, attempts: list[Running]) -> None:
        """Start claimed attempts."""
        ...

    def count_ahead(self) -> int:
        """Return how many attempts may end before a slot could be idle."""
        ...

    def count_waiting(self) -> int:
        """Return how many attempts were claimed and have not begun."""
        ...

    def give_back(self, reason: str) -> None:
        """Give back all attempts that wait for a slot."""
        ...

    def give_back_late(self) -> None:
        """Give back attempts that have waited too long for a slot."""
        ...


class AttemptControl(Protocol):
    """Ends attempts, and shows where they are. Unknown tokens are fine; ends go to ``InFlight``."""

    def has(self, token: int) -> bool:
        """Whether this attempt is running or waits for a slot."""
        ...

    def stop(self, token: int, reason: str) -> None:
        """Take an attempt back or, if it has begun, ask it to stop. The first reason counts."""
        ...

    def recall(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> bool:
        """Take back attempts whose code has not begun: all, or the ones that ``which`` selects.
        Call it until it returns True: then all others of these attempts have begun."""
        ...

    async def find_stack(self, token: int) -> str:
        """Return where an attempt is, in lines for people, "" if it has ended. This does not
        disturb it, and takes SHOW_SECONDS_MAX at most."""
        ...

    def end_all(self, reason: str, spare: Collection[int] = ()) -> None:
        """End every attempt now except ``spare``, by force if that is possible."""
        ...

    # by force; where attempts run in the worker's own process, these do nothing

    def kill(self, token: int) -> None:
        """Kill the runner of an attempt that did not stop."""
        ...

    def kill_process(self, pid: int, reason: str) -> None:
        """Kill the runner with this pid; unknown ones are fine."""
        ...

    def kill_locking(self, pid: int, waits: int | None) -> None:
        """Kill the runner with this pid, which keeps the store's file locked, if it is empty; even
        with attempts if a job is named (``waits``) that has long waited for the file."""
        ...

    def give_up(self, tokens: Collection[int]) -> None:
        """Stop waiting for killed runners that have these attempts and do not end."""
        ...


class Pool(Protocol):
    """Runs attempts, in processes or in this one."""

    @property
    def starter(self) -> AttemptStarter:
        """The part that starts attempts."""
        ...

    @property
    def control(self) -> AttemptControl:
        """The part that ends attempts."""
        ...

    @property
    def keeper(self) -> Duty | None:
        """The duty that keeps the number of processes; None if there are no processes."""
        ...

    @property
    def has_started(self) -> bool:
        """Whether attempts could ever run: the pool was ready once. From any thread."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the pool could run an attempt now. From any thread."""
        ...

    @property
    def watchdog(self) -> Duty:
        """The duty that holds attempts to their limits."""
        ...

    async def close(self) -> None:
        """End all runners of attempts; none is left afterwards."""
        ...


class Lease:
    """A worker's right to its running jobs, as ``Registration`` keeps it. ``trust``: the window in
    which the store will not have given them away. ``draining``: the worker takes no more jobs."""

    def __init__(self, terms: LeaseTerms, clock: Clock) -> None:
        self.me = WorkerRef(0, 0)
        self.terms = terms
        self.trust = Trust(terms, clock.boot())
        self.draining = False
        self._fenced = False
        self._clock = clock

    async def reconnect(self) -> bool:
        """Raise the epoch of the registration. Return False if the lease is lost."""
        raise NotImplementedError

    def is_trusted(self) -> bool:
        """Whether attempts may continue under the current lease."""
        return not self._fenced and self._clock.boot() < self.trust.stop_at

    def is_renewed(self) -> bool:
        """Whether the store has lately taken a heartbeat of this worker."""
        pause = self.terms.heartbeat * PAUSE_BEATS + PAUSE_SECONDS
        return self._clock.boot() - self.trust.asked_at <= pause

    def may_claim(self) -> bool:
        """Whether new jobs may be taken, and claimed attempts begin."""
        return not self.draining and self.is_trusted()


class Owner(Protocol):
    """The worker as seen by its pool and its duties, which it makes and which report to it."""

    pool: Pool

    @property
    def registration(self) -> Lease:
        """Its registration."""
        ...

    @property
    def me(self) -> WorkerRef:
        """The current registration."""
        ...

    def check_lease(self) -> None:
        """Stop all attempts if the lease is no longer trusted."""
        ...

    def note_begin(self, token: int) -> None:
        """Note, before they begin, that attempts up to this token will begin."""
        ...

    def note_pool_change(self) -> None:
        """Note that the capacity of the pool has changed, or that a runner is missing."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the worker at once: it cannot continue because of this error."""
        ...

    def look_for_work(self) -> None:
        """Check the store for work: there may be more."""
        ...

    def note_registration(self) -> None:
        """Note a new row or epoch."""
        ...

    async def hand_in_the_rest(self) -> bool:
        """Hand in all ended attempts to the store; return False if it does not take some now."""
        ...

    def give_up(self, error: Exception, seconds: float) -> None:
        """Leave: for ``seconds`` the store has refused a new row with this error."""
        ...

    def take_look(self, look: Snapshot) -> None:
        """Act on a snapshot of the store."""
        ...

    def take_peek(self, peek: Peek) -> None:
        """Act on a peek at the store."""
        ...

    def note_reaped(self, gone: WorkerSeen, cause: DeathCause) -> None:
        """Note a worker that is gone."""
        ...

    def note_reclaimed(self, applied: list[Transition]) -> None:
        """Note jobs that were given back."""
        ...
