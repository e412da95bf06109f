"""Broken variants: one guard of the production code is removed, and the exploration must notice.

A twin patches production code (a statement of the store, ``decide``, a rule of the lease) or, where
the guard is a worker's, the step that stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from outlast.model import lease, lifecycle
from outlast.model.crash import Charge, CrashKind
from outlast.model.job import State
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import workers as sqlite_workers
from outlast.worker.runners import exits
from tests.model.explore import Found, explore
from tests.model.leases import LEASES, reachable
from tests.model.scenes import SCENES, alone
from tests.model.steps import Steps
from tests.sim import twins as simulation
from tests.sim.twins import without

Patch = AbstractContextManager[Any]
Make = Callable[[], Iterable[Patch]]
STATES = 8_000  # in which every twin has to be caught


class Twin(NamedTuple):
    """``scene`` shows it, ``law`` must break."""

    scene: str
    law: str
    make: Make


OF_THE_SIMULATION = {  # its twins that the exploration must catch, too: scene and law
    "no token check in complete": ("deaths", "fenced"),
    "no token check in retry, snooze and release": ("deaths", "fenced"),
    "no token check in checkpoint": ("saves", "fenced"),
    "no epoch check in the exchange": ("replies", "one_holder"),
    "claims need no live worker": ("replies", "one_holder"),
    "a checkpoint without its number": ("saves", "checkpoints"),
    "a repeated end is refused": ("replies", "already"),
    "neighbours of a death are charged": ("suspects", "the_innocent"),
}
TWINS = {
    name: Twin(scene, law, simulation.TWINS[name].patches)
    for name, (scene, law) in OF_THE_SIMULATION.items()
}


def twin(name: str, scene: str, law: str) -> Callable[[Make], Make]:
    """Name a twin."""

    def add(make: Make) -> Make:
        TWINS[name] = Twin(scene, law, make)
        return make

    return add


def caught(name: str) -> Found:
    """Explore the twin's scene until something is wrong."""
    broken = TWINS[name]
    with ExitStack() as patches:
        for patch in broken.make():
            patches.enter_context(patch)
        if broken.scene in LEASES:
            states, wrong, path = reachable(*LEASES[broken.scene])
            return Found(broken.scene, states=states, wrong=wrong, path=path)
        scene = SCENES[broken.scene]
        scene = scene if any(scene.kills) else alone(scene)
        return explore(scene, states_max=STATES)


# ------------------------------------------------------------------------ the store's guards


@twin("no token check in complete_in", "transactions", "fenced")
def _complete_in() -> Iterable[Patch]:
    yield without(sqlite_jobs._JOBS, "complete", "AND token = :token")


@twin("no epoch check in reconcile", "replies", "no_false_reclaim")
def _reconcile_epoch() -> Iterable[Patch]:
    yield mock.patch.object(sqlite_workers, "worker_status", return_value="active")


@twin("a budget that was forgiven unheard ends the job", "saves", "budgets")
def _unheard() -> Iterable[Patch]:
    yield mock.patch.object(sqlite_exchange, "_unless_forgiven", lambda cursor, end: end)


@twin("a cancel that comes after the decision is lost", "operators", "cancelled")
def _cancel() -> Iterable[Patch]:
    text = sqlite_exchange._SQL["end"].replace("AND cancel_requested THEN", "AND 0 THEN")
    yield mock.patch.dict(
        sqlite_exchange._SQL, {"end": text.replace("AND NOT cancel_requested", "")}
    )


@twin("an end leaves no evidence", "deaths", "evidence")
def _evidence() -> Iterable[Patch]:
    yield without(sqlite_exchange._SQL, "keep_evidence", "AND j.state = 'running'", "AND 0")


@twin("the innocent of an incident are not cleared", "suspects", "cleared")
def _clear() -> Iterable[Patch]:
    yield mock.patch.object(sqlite_exchange, "clear")


@twin("a will names its host alone", "wills", "a_will_is_of_the_dead")
def _will() -> Iterable[Patch]:
    guard = "AND lock_path = :path AND lock_device = :device AND lock_inode = :inode"
    yield without(sqlite_workers._WORKERS, "tell_gone", guard)


# --------------------------------------------------------------------------------- decide


def decided(change: Callable[[Any, Any], dict[str, Any]]) -> Patch:
    """Return a patch of ``decide``: what it says, with some fields changed."""
    real = lifecycle.decide

    def other(facts: Any, outcome: Any, random: Any) -> Any:
        said = real(facts, outcome, random)
        return msgspec.structs.replace(said, **change(facts, said))

    return mock.patch.object(lifecycle, "decide", other)


@twin("a reclaim is not counted", "deaths", "charged")
def _uncounted() -> Iterable[Patch]:
    yield decided(
        lambda facts, said: (
            {"losses": facts.losses, "charge": Charge.NONE, "state": State.QUEUED}
            if said.outcome == CrashKind.LOST_WORKER
            else {}
        )
    )


@twin("an interruption is charged", "drains", "the_innocent")
def _interrupted() -> Iterable[Patch]:
    yield decided(
        lambda facts, said: {"failures": facts.failures + 1} if said.outcome == "released" else {}
    )


@twin("a used up budget does not end the job", "deaths", "budgets")
def _endless() -> Iterable[Patch]:
    yield decided(lambda facts, said: {"state": State.QUEUED} if said.state == "dead" else {})


@twin("suspects are among others again", "suspects", "suspects_run_alone")
def _suspects() -> Iterable[Patch]:
    yield mock.patch.object(exits, "suspects_of", return_value={})


@twin("the death of any worker is charged", "suspects", "charged")
def _any_worker() -> Iterable[Patch]:
    yield mock.patch.object(lifecycle, "_killed_its_worker", return_value=True)


@twin("absence of presence counts as a proof", "deaths", "charged_by_proof")
def _no_proof() -> Iterable[Patch]:
    proofs = {*lease.DeathCause} - {lease.DeathCause.SILENCE}
    yield mock.patch.object(lease.DeathCause, "proven", property(proofs.__contains__))


# ------------------------------------------------------------------------- a worker's guards


@twin("unheard claims are not reconciled", "transactions", "no_job_is_lost")
def _reconcile() -> Iterable[Patch]:
    def nothing(self: Any, world: Any, i: int, slot: Any) -> Iterator[Any]:
        return iter(())

    def repaired(self: Any, world: Any, i: int, slot: Any) -> Iterator[Any]:
        for step in repairs(self, world, i, slot):
            slots = list(step.after.slots)
            slots[i] = slots[i]._replace(broken=0)
            yield step._replace(after=step.after._replace(slots=tuple(slots)))

    repairs = Steps._repairs
    yield mock.patch.object(Steps, "_reconciles", nothing)
    yield mock.patch.object(Steps, "_repairs", repaired)


@twin("attempts go on after the lease", "deaths", "the_loser_stops")
def _no_fence() -> Iterable[Patch]:
    yield mock.patch.object(Steps, "_fenced", lambda self, slot: slot._replace(trusts=False))


@twin("a claim that is heard of too late is started", "deaths", "the_loser_stops")
def _late_start() -> Iterable[Patch]:
    real = Steps._hears

    def eager(self: Any, world: Any, i: int, slot: Any) -> Iterator[Any]:
        return real(self, world, i, slot._replace(trusts=True, since=False))

    yield mock.patch.object(Steps, "_hears", eager)


# --------------------------------------------------------------------------------- leases


@twin("trust counts from the reply", "trusting", "found silent")
def _trust() -> Iterable[Patch]:
    def renewed(self: Any, asked_at: float) -> None:
        self.asked_at = 1_000.0

    yield mock.patch.object(lease.Trust, "renewed", renewed)


@twin("trust ends after the lease", "trusting", "found silent")
def _margin() -> Iterable[Patch]:
    yield mock.patch.object(lease, "KILL_FRACTION", 1.1)


@twin("looks with gaps count", "beating", "found silent")
def _gaps() -> Iterable[Patch]:
    yield mock.patch.object(lease, "GAP_FRACTION", 10.0)


@twin("presence is judged in one look", "present", "reaped by presence")
def _one_look() -> Iterable[Patch]:
    yield mock.patch.object(lease, "ABSENT_BEATS", -1.0)


@twin("presence is judged across a gap", "present", "reaped by presence")
def _across() -> Iterable[Patch]:
    yield mock.patch.object(lease, "ABSENT_GAP_BEATS", 10.0)
