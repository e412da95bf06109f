"""Broken twins: versions of the code with one guard taken away, which the checkers must catch.

Each names the guard that it lacks; ``tests/sim/caught.py`` plays seeds with them. A twin
that no check catches is a hole in the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from outlast.client.attempt import Attempt
from outlast.errors import StoreError
from outlast.model import schedule_plan, watch
from outlast.model.crash import Charge, CrashKind
from outlast.model.lease import Beating, DeathCause, Observer, PresenceObserver
from outlast.model.lifecycle import decide
from outlast.runner import execute
from outlast.store.lockfile import Probe
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import lanes
from outlast.store.sqlite import refusals as sqlite_refusals
from outlast.store.sqlite import schedules as sqlite_schedules
from outlast.store.sqlite import workers as sqlite_workers
from outlast.store.sqlite.connection import writes
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import Answer
from outlast.worker.claims import exchange, in_flight
from outlast.worker.lease import last_will, registration
from outlast.worker.maintenance import reaper, scheduler
from outlast.worker.runners import control, exits
from tests.sim import host as host_module
from tests.sim import world as world_module
from tests.sim.disk import Disk
from tests.sim.loop import PROCESS
from tests.sim.presence import Database

Patch = AbstractContextManager[Any]
Make = Callable[[], Iterable[Patch]]


class Twin(NamedTuple):
    """How to take the guard away, and where that is noticed."""

    patches: Make
    seed: int
    theme: str


TWINS: dict[str, Twin] = {}


def twin(name: str, *, seed: int, theme: str) -> Callable[[Make], Make]:
    """Name a twin; ``seed`` is known to catch it, and ``theme`` reaches the guard that it lacks."""

    def add(make: Make) -> Make:
        TWINS[name] = Twin(make, seed, theme)
        return make

    return add


def without(statements: dict[str, str], name: str, guard: str, instead: str = "") -> Patch:
    """Return a patch of one SQL statement; the guard must be there."""
    text = statements[name]
    assert guard in text, f"{name} has no {guard!r} to take away"
    return mock.patch.dict(statements, {name: text.replace(guard, instead)})


@twin("no token check in complete", seed=97, theme="pauses")
def _complete() -> Iterable[Patch]:
    guard = "AND token = CAST(substr(e.key, instr(e.key, ':') + 1) AS INTEGER)"
    yield without(sqlite_exchange._SQL, "complete", guard)


@twin("no token check in checkpoint", seed=559, theme="calls")
def _checkpoint() -> Iterable[Patch]:
    yield without(sqlite_jobs._JOBS, "checkpoint", "AND token = :token")


@twin("no token check in retry, snooze and release", seed=65, theme="pauses")
def _end() -> Iterable[Patch]:
    yield without(sqlite_exchange._SQL, "end", "AND token = :token")
    yield without(sqlite_exchange._SQL, "keep_evidence", "AND j.token = :token")


@twin("trust counts from after the reply", seed=931, theme="cuts")
def _trust() -> Iterable[Patch]:
    real = registration.Registration.take_beat

    def late(self: Any, asked_at: float, me: Any, beat: Any) -> bool:
        return real(self, self._clock.boot(), me, beat)

    yield mock.patch.object(registration.Registration, "take_beat", late)


@twin("no epoch check in the exchange", seed=207, theme="calls")
def _epoch() -> Iterable[Patch]:
    yield without(sqlite_exchange._SQL, "worker", "AND epoch = ?", "AND ? IS NOT NULL")


@twin("claims need no live worker", seed=175, theme="calls")
def _status() -> Iterable[Patch]:
    def alive(cursor: Any, me: Any) -> str:
        return "active"

    yield mock.patch.object(sqlite_exchange, "worker_status", alive)


@twin("unheard claims are not reconciled", seed=21, theme="calls")
def _reconcile() -> Iterable[Patch]:
    async def nothing(self: Any) -> None:
        self._reconciled_at = self._clock.boot()

    yield mock.patch.object(exchange.Exchange, "_reconcile", nothing)


@twin("a reclaim is not counted", seed=43, theme="deaths")
def _uncounted() -> Iterable[Patch]:
    def free(facts: Any, outcome: Any, random: Any) -> Any:
        decided = decide(facts, outcome, random)
        return msgspec.structs.replace(
            decided, charge=Charge.NONE, losses=facts.losses, failures=facts.failures
        )

    yield mock.patch.object(reaper, "decide", free)


@twin("a slot is free before its answer", seed=111, theme="calls")
def _early_slot() -> Iterable[Patch]:
    yield mock.patch.object(in_flight.InFlight, "held", lambda self: {*self.running})


@twin("a repeated end is refused", seed=79, theme="calls")
def _no_already() -> Iterable[Patch]:
    def refused(cursor: Any, now: float, job_id: int, token: int, *_: Any, **__: Any) -> Answer:
        return sqlite_refusals.refuse(cursor, now, job_id, token, "end")

    yield mock.patch.object(sqlite_exchange, "judge", refused)


@twin("restart in place by the host's name", seed=33, theme="deaths")
def _host_name() -> Iterable[Patch]:
    real = reaper.Reaper._cause_of_death

    def same_host(self: Any, each: Any, *rest: Any) -> Any:
        here = each.host == PROCESS.get().owner.host.name
        return DeathCause.RESTARTED if self._first and here else real(each, *rest)

    yield mock.patch.object(reaper.Reaper, "_cause_of_death", same_host)


@twin("neighbours of a death are charged", seed=11, theme="deaths")
def _blame() -> Iterable[Patch]:
    real = exits.make_crash

    def blamed(kind: CrashKind, *rest: Any, **more: Any) -> Any:
        return real(CrashKind.SIGNALLED if kind is CrashKind.BYSTANDER else kind, *rest, **more)

    yield mock.patch.object(exits, "make_crash", blamed)


@twin("the store's clock judges", seed=357, theme="outages")
def _store_clock() -> Iterable[Patch]:
    def expired(self: Any, now: float, signs: Any) -> list[Any]:
        world = world_module.current
        look = world.disk.look()
        sql = "SELECT id, lease_expires_at FROM outlast_workers"
        rows = dict(look.execute(sql).fetchall())
        look.close()
        wall = host_module.StoreClock(world, world.store_host).wall()
        return [sign for sign in signs if rows.get(sign.worker_id, wall) < wall]

    yield mock.patch.object(Observer, "look", expired)


@twin("one look that fails does not start over", seed=357, theme="outages")
def _no_forget() -> Iterable[Patch]:
    yield mock.patch.object(Observer, "forget")
    yield mock.patch.object(Observer, "_gap", staticmethod(lambda now, watched, sign: False))


@twin("a checkpoint without its number", seed=207, theme="calls")
def _number() -> Iterable[Patch]:
    yield without(sqlite_jobs._JOBS, "checkpoint", "AND checkpoint_number < :number")


@twin("a cancel is lost in a reclaim", seed=109, theme="operators")
def _cancel() -> Iterable[Patch]:
    def deaf(facts: Any, outcome: Any, random: Any) -> Any:
        facts = msgspec.structs.replace(facts, cancel_requested=False)
        return decide(facts, outcome, random)

    yield mock.patch.object(reaper, "decide", deaf)
    yield without(sqlite_exchange._SQL, "end", "AND cancel_requested THEN", "AND 0 THEN")
    text = sqlite_exchange._SQL["end"].replace("AND cancel_requested THEN", "AND 0 THEN")
    yield mock.patch.dict(
        sqlite_exchange._SQL, {"end": text.replace("AND NOT cancel_requested", "")}
    )


@twin("runners without a tether", seed=97, theme="pauses")
def _tether() -> Iterable[Patch]:
    yield mock.patch.object(host_module.SimTether, "_end_groups")


@twin("a last will before the runners are gone", seed=37, theme="last wills")
def _hasty_will() -> Iterable[Patch]:
    let_go = host_module.SimTether.let_go

    async def carry_out(self: Any) -> None:
        await will(self)
        let_go(self)

    will = host_module.SimTether.carry_out_the_will
    yield mock.patch.object(host_module.SimTether, "let_go")
    yield mock.patch.object(host_module.SimTether, "carry_out_the_will", carry_out)
    yield mock.patch.object(last_will, "probe", return_value=Probe.FREE)


@twin("attempts go on after the lease", seed=259, theme="cuts")
def _no_fence() -> Iterable[Patch]:
    real = control.RunnersControl.stop

    def stop(self: Any, token: int, reason: Any) -> None:
        if reason != "lease_lost":
            real(self, token, reason)

    async def wait(self: Any, kill_at: float) -> None:
        while self._isolation.others():
            await self._clock.sleep(0.01)

    yield mock.patch.object(control.RunnersControl, "stop", stop)
    yield mock.patch.object(registration.Registration, "_end_all_but_kept", wait)
    yield mock.patch.object(host_module.SimTether, "hold_until")


@twin("a reclaim by id alone", seed=1297, theme="slow disk")
def _by_id() -> Iterable[Patch]:
    real = sqlite_exchange.apply

    def by_id(cursor: Any, now: float, ended: Any) -> int:
        with without(sqlite_exchange._SQL, "end", "AND token = :token"):  # evidence has its own
            return real(cursor, now, ended)

    yield mock.patch.object(sqlite_workers, "apply", by_id)


@twin("a reap that does not look again", seed=1011, theme="near deaths")
def _hasty() -> Iterable[Patch]:
    def hasty(cursor: Any, now: float, gone: Any, cause: DeathCause) -> bool:
        values = {"now": now, "cause": cause.value, "begun": gone.begun, "id": gone.worker_id}
        marked = cursor.execute(sqlite_workers._WORKERS["reap"], values)
        return bool(marked.rowcount == 1)

    yield mock.patch.object(SqliteStore, "reap", writes(hasty))


@twin("presence judged in one look", seed=9, theme="presence")
def _one_look() -> Iterable[Patch]:
    yield mock.patch.object(PresenceObserver, "_is_gone", return_value=True)


@twin("presence judged across a restart of the database", seed=1385, theme="presence")
def _other_run() -> Iterable[Patch]:
    def ever(self: Any, worker_id: int) -> bool:
        return worker_id in self._noted

    yield mock.patch.object(Database, "_is_of_this_run", ever)


@twin("trust on a clock that stands still in a suspend", seed=199, theme="suspends")
def _monotonic() -> Iterable[Patch]:
    real = host_module.HostClock.boot

    def monotonic(self: Any) -> float:
        return real(self) - PROCESS.get().slept

    yield mock.patch.object(host_module.HostClock, "boot", monotonic)


@twin("a claim is started though the lease was lost meanwhile", seed=533, theme="beats")
def _late_claim() -> Iterable[Patch]:
    def start(self: Any, claimed: Any, asked_as: Any) -> None:
        self._starter.start(self._in_flight.claim(claimed))

    yield mock.patch.object(exchange.Exchange, "_start", start)


@twin("a registration without its key", seed=21, theme="calls")
def _registration() -> Iterable[Patch]:
    real = registration.Registration._make_registration

    def keyless(self: Any, now: float) -> Any:
        return msgspec.structs.replace(real(self, now), registration=None)

    yield mock.patch.object(registration.Registration, "_make_registration", keyless)


@twin("no polling under the wake-ups", seed=128, theme="calls")
def _no_polling() -> Iterable[Patch]:
    real = exchange.Exchange.run_once

    async def once(self: Any) -> float | None:
        pause = await real(self)
        return None if pause is not None and pause >= self._plan._poll else pause

    yield mock.patch.object(exchange.Exchange, "run_once", once)


@twin("presence judged across the crash of a backend", seed=281, theme="backend crashes")
def _same_run() -> Iterable[Patch]:
    def crash(self: Any) -> None:
        run = self.incarnation
        self.restart()
        self.incarnation = run

    yield mock.patch.object(Database, "crash", crash)


@twin("tokens do not jump in a failover", seed=29, theme="failovers")
def _no_jump() -> Iterable[Patch]:
    yield mock.patch.object(Disk, "raise_tokens")


@twin("a copy of a database counts as the one it was made of", seed=673, theme="copies")
def _copied_row() -> Iterable[Patch]:
    counts = property(lambda self: self.drawn_in is not None)
    yield mock.patch.object(Database, "has_incarnation", counts)


@twin("tokens of a file without the time of day", seed=123, theme="copies")
def _no_time_of_day() -> Iterable[Patch]:
    plain = lanes._DRAW_TOKENS.replace(world_module.TIME_OF_DAY, "0")
    yield mock.patch.object(lanes, "_DRAW_TOKENS", plain)


@twin("a save that waits for the store is no sign of life", seed=39, theme="stalls")
def _silent_save() -> Iterable[Patch]:
    yield mock.patch.object(in_flight.InFlight, "note_saving")


@twin("saves are compared as they are encoded", seed=41, theme="relapses")
def _encoded_alike() -> Iterable[Patch]:
    real = Attempt.__init__

    def init(self: Any, link: Any, claimed: Any, **more: Any) -> None:
        real(self, link, claimed, **more)
        self._went_on_from = claimed.checkpoint

    yield mock.patch.object(Attempt, "__init__", init)


@twin("a deadline is judged of a worker that does not beat", seed=667, theme="long pauses")
def _unbeaten() -> Iterable[Patch]:
    def now(self: Any, worker_id: int, *, after: float) -> float:
        return float(host_module.HostClock.boot(PROCESS.get().owner.clock))

    yield mock.patch.object(Beating, "last_beat", now)


@twin("a reap that fails ends the look, and all that was observed", seed=215, theme="stuck replies")
def _one_row_stops_all() -> Iterable[Patch]:
    async def fails(self: Any, gone: Any, cause: DeathCause) -> bool:
        try:
            return bool(await self._store.reap(gone, cause))
        except StoreError:
            self._forget()
            raise

    yield mock.patch.object(reaper.Reaper, "_try_to_reap", fails)


@twin("claims without a bound in bytes", seed=31, theme="slow links")
def _no_bytes() -> Iterable[Patch]:
    yield mock.patch.object(in_flight.TripBytes, "note_break")


@twin("a worker's row known by its id alone", seed=48, theme="failovers")
def _by_row_id() -> Iterable[Patch]:
    yield without(sqlite_exchange._SQL, "worker", "registration IS ?", "(1 OR registration IS ?)")
    by_name = "registration IS :registration"
    for name in (
        "beat_seen",
        "show_beat",
        "heartbeat",
    ):  # where beats go to the row, and where to a file
        yield without(sqlite_workers._WORKERS, name, by_name, f"(1 OR {by_name})")
    guard = "registration IS ?"
    yield without(sqlite_workers._WORKERS, "reconnect", guard, f"(1 OR {guard})")


@twin("only the first watch, and none is succeeded", seed=27, theme="watchers")
def _no_successor() -> Iterable[Patch]:
    real = watch.WatchPart.take_peek

    def first_only(self: Any, now: float, worker_id: int, marks: Any) -> bool:
        stepped_in = real(self, now, worker_id, marks)
        self.is_on = self.place is not None
        return stepped_in

    yield mock.patch.object(watch.WatchPart, "take_peek", first_only)
    yield mock.patch.object(watch._Seen, "is_free", lambda self, now: not self._mark)


@twin("a return after a stop was noticed completes", seed=5, theme="operators")
def _cut_short() -> Iterable[Patch]:
    yield mock.patch.object(execute, "cut_short", return_value=None)


@twin("a tick is fired without compare-and-set", seed=43, theme="schedules")
def _fire_anyway() -> Iterable[Patch]:
    guard = "AND next_tick = ? AND revision = ? AND paused = 0"
    yield without(sqlite_schedules._SQL, "stands", guard, "AND ? IS NOT NULL AND ? IS NOT NULL")


@twin("a tick need not be later than the one before", seed=43, theme="schedules")
def _tick_again() -> Iterable[Patch]:
    def again(spec: Any, since: float, *rest: Any) -> Any:
        return schedule_plan.plan(spec, since - 0.5, *rest)

    yield mock.patch.object(scheduler, "plan", again)
