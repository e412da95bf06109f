"""The guarantees (docs/guarantees.md), as laws on one step: the worlds before and after it, and
what the store was asked and answered. They know neither the store nor ``decide``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlast.model.job import State
from tests.model.scenes import Scene
from tests.model.state import ENDED, LOST, End, World, tokens_of
from tests.model.transition import Step, Told

TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED}),
    State.BLOCKED: frozenset({State.QUEUED, State.CANCELLED}),
    State.RUNNING: frozenset(
        {State.QUEUED, State.BLOCKED, State.COMPLETED, State.DEAD, State.CANCELLED}
    ),
    State.COMPLETED: frozenset(),
    State.DEAD: frozenset({State.QUEUED}),
    State.CANCELLED: frozenset({State.QUEUED, State.BLOCKED}),
}
"""The legal moves. From ``dead`` and ``cancelled`` only an operator's requeue leads back; the
requeue of a dead job also brings back the jobs that were cancelled because they waited for it."""

WRITES = {"end", "save", "complete_in", "reclaim", "late reclaim", "overdue"}
FREE = {"released", "snoozed", "cancelled", "completed"}
Wrong = Iterator[str]


def legal(scene: Scene, before: World, step: Step) -> Wrong:
    """A job goes only from states to states that the table names."""
    for old, new in zip(before.db.jobs, step.after.db.jobs, strict=True):
        if old.state != new.state and State(new.state) not in TRANSITIONS[State(old.state)]:
            yield f"a job went from {old.state} to {new.state}"


def fenced(scene: Scene, before: World, step: Step) -> Wrong:
    """A write is accepted only under the current token; one that is not changes nothing."""
    for told in step.told:
        if told.verb not in WRITES:
            continue
        job = before.db.jobs[told.job]
        current = job.state == "running" and job.token == told.token
        if told.answer == "accepted" and not current:
            yield f"{told.verb} under {told.token} was accepted: the job {_is(before, told)}"
        if told.answer != "accepted" and step.after.db != before.db:
            yield f"{told.verb} under {told.token} was {told.answer}, and has changed something"


def already(scene: Scene, before: World, step: Step) -> Wrong:
    """The same end written twice is not a refusal."""
    for told in step.told:
        if told.verb != "end" or told.answer != "refused":
            continue
        job, end = before.db.jobs[told.job], _end_of(before, told)
        done = job.state == "completed" and job.token == told.token and end == "completed"
        if done or (told.token, told.job, end) in before.db.closed:
            yield f"the {end} under {told.token} was refused, though it was written before"


def one_holder(scene: Scene, before: World, step: Step) -> Wrong:
    """Only a queued job is claimed, by a live worker at its epoch, under a token above all."""
    for told in step.told:
        if told.verb not in {"claim", "stale claim"}:
            continue
        job = before.db.jobs[told.job]
        if told.verb == "stale claim":
            yield "a claim of an earlier epoch or registration took a job"
        if job.state != "queued":
            yield f"a job was claimed that {_is(before, told)}"
        if job.cancel:
            yield "a cancelled job was claimed"
        if told.token <= max(tokens_of(before)):
            yield f"token {told.token} was drawn again"
        if told.value != job.value:
            yield f"checkpoint {told.value} was handed on, {job.value} was saved"
        if before.db.rows[told.slot] != "active":
            yield "a worker claimed whose row is not active"


def no_false_reclaim(scene: Scene, before: World, step: Step) -> Wrong:
    """No worker takes a job from a worker that trusts its lease and holds the job."""
    for index, job in enumerate(before.db.jobs):
        if job.state != "running" or not 0 < job.owner <= len(before.slots):
            continue
        slot = before.slots[job.owner - 1]
        runs = [held.token for held in slot.held if not held.end]
        if not (slot.up and slot.trusts and slot.me == 1 and job.token in runs):
            continue
        after = step.after.db.jobs[index]
        ends = {"end", "complete_in", "overdue"}
        own = any(told.verb in ends and told.job == index for told in step.told)
        died = not step.after.slots[job.owner - 1].up
        if not own and not died and (after.token, after.state) != (job.token, "running"):
            yield f"the attempt under {job.token} was taken from its healthy worker"


def the_loser_stops(scene: Scene, before: World, step: Step) -> Wrong:
    """No user code starts while another attempt of its job may still be running, unless one of
    them was closed as far above its timeout: its worker finds that out at its next look."""
    for told in step.told:
        if told.verb != "start":
            continue
        for held in (held for slot in step.after.slots for held in slot.held):
            other = held.job == told.job and held.token != told.token and not held.end
            pair = {(held.token, held.job, "timeout"), (told.token, told.job, "timeout")}
            if other and not pair & {*step.after.db.closed}:
                yield f"{told.token} started while {held.token} was running"


def budgets(scene: Scene, before: World, step: Step) -> Wrong:
    """A used up budget ends the job, and nothing else makes it dead."""
    policy = scene.policy
    for old, new in zip(before.db.jobs, step.after.db.jobs, strict=True):
        spent = new.failures > policy.retries or new.losses > policy.max_losses
        if new.state in {"queued", "running"} and spent:
            yield f"a job lives with {new.failures} failures and {new.losses} losses"
        if new.state == "dead" and old.state != "dead" and not spent:
            yield f"a job died with {new.failures} failures and {new.losses} losses"


def charged(scene: Scene, before: World, step: Step) -> Wrong:
    """Every loss is counted once, an interruption never, and what is free costs nothing."""
    closed = set(step.after.db.closed) - set(before.db.closed)
    for token, index, outcome in closed:
        old, new = before.db.jobs[index], step.after.db.jobs[index]
        if outcome in FREE and new.failures != old.failures:
            yield f"{outcome} under {token} was charged"
        # a death alone in the whole worker may be the job's own
        failures = new.failures - old.failures
        if outcome == "lost_worker" and (new.losses - old.losses, failures) not in {(1, 0), (0, 1)}:
            yield f"the loss of {token} was not counted once"
        if new.losses > old.losses + 1:
            yield f"the end of {token} was counted as {new.losses - old.losses} losses"
        if outcome == "lost_worker" and failures and old.solo < 2:
            yield f"the loss of {token} was charged, though it was not alone in its worker"


def the_innocent(scene: Scene, before: World, step: Step) -> Wrong:
    """Where no task fails by itself, only one that takes its runner down is ever charged."""
    if set(scene.ends) - {"completed", "snoozed"} or scene.overdue or scene.complete_in:
        return
    for job in step.after.db.jobs:
        if job.failures and not job.kills and job.solo < 2:
            yield "an innocent job was charged"
    for told in step.told:
        if told.verb == "died failure" and not before.db.jobs[told.job].kills:
            yield "the death of its neighbour was charged to a job"


def charged_by_proof(scene: Scene, before: World, step: Step) -> Wrong:
    """A worker that is merely silent counts as that: the network may be at fault."""
    for told in step.told:
        for old, new in zip(before.db.jobs, step.after.db.jobs, strict=True):
            held = old.state == "running" and old.owner == told.slot + 1
            if told.verb == "is found silent" and held and new.owner == LOST:
                yield f"worker {told.slot + 1} counts as dead by proof"


def a_will_is_of_the_dead(scene: Scene, before: World, step: Step) -> Wrong:
    """What a tether tells ends no row of a worker that lives, as of one that was started again."""
    for told in step.told:
        for index, slot in enumerate(before.slots):
            ends = before.db.rows[index] and not step.after.db.rows[index]
            if told.verb == "is told gone" and slot.up and slot.me == 1 and ends:
                yield f"worker {index + 1} lives, and was marked by the will of another"


def suspects_run_alone(scene: Scene, before: World, step: Step) -> Wrong:
    """Those that died together do not share a runner again before one of them is charged."""
    if any(told.verb == "died loss" for told in step.told):
        for held in (held for slot in step.after.slots for held in slot.held):
            fresh = held.end and held.end.outcome == "bystander" and held.end.charge == "loss"
            if fresh and held.end and held.end.state == "queued" and not held.end.solo:
                yield f"{held.token} died with others and would run among others again"
    for slot in step.after.slots:
        running = [held for held in slot.held if not held.end]
        if len(running) < 2:
            continue
        if any(held.solo == 2 for held in running):
            yield "a job that is to have its worker alone has company"


def cleared(scene: Scene, before: World, step: Step) -> Wrong:
    """Once a death has named its culprit, no queued job is a suspect of that incident."""
    for told in step.told:
        end = _whole_end_of(before, told)
        if told.verb != "end" or told.answer != "accepted" or end is None or not end.clears:
            continue
        for job in step.after.db.jobs:
            if job.state == "queued" and job.solo == 1 and job.incident == end.clears:
                yield f"a job is still suspected of incident {end.clears}"


def evidence(scene: Scene, before: World, step: Step) -> Wrong:
    """An attempt that is over without completion has left one row, and no other ever has."""
    kept = [(token, job) for token, job, _ in step.after.db.closed]
    if len(set(kept)) != len(kept):
        yield "an attempt was closed twice"
    for index, (old, new) in enumerate(zip(before.db.jobs, step.after.db.jobs, strict=True)):
        if old.state != "running":
            continue
        over = new.state != "running" or new.token != old.token
        if over and new.state != "completed" and (old.token, index) not in kept:
            yield f"the attempt under {old.token} is over without evidence"
        if not over and (old.token, index) in kept:
            yield f"the attempt under {old.token} was closed, and goes on"


def checkpoints(scene: Scene, before: World, step: Step) -> Wrong:
    """A checkpoint changes only by a save that was accepted, and only forward."""
    accepted = {told.job for told in step.told if told.verb == "save" and told.answer == "accepted"}
    for index, (old, new) in enumerate(zip(before.db.jobs, step.after.db.jobs, strict=True)):
        if index in accepted:
            if new.saved <= old.saved:
                yield f"save {new.saved} was accepted after {old.saved}"
        elif new.value != old.value:
            yield "a checkpoint changed without a save"


def cancelled(scene: Scene, before: World, step: Step) -> Wrong:
    """An accepted cancel wins over every way back to the queue."""
    requeued = {told.job for told in step.told if told.verb == "requeue"}
    for index, (old, new) in enumerate(zip(before.db.jobs, step.after.db.jobs, strict=True)):
        if old.cancel and index not in requeued and new.state == "queued":
            yield "a job with a cancel request is queued again"


OF_THE_STORE = (legal, no_false_reclaim, budgets, charged, evidence, checkpoints, cancelled)
OF_WHAT_WAS_TOLD = (
    fenced,
    already,
    one_holder,
    the_loser_stops,
    the_innocent,
    charged_by_proof,
    a_will_is_of_the_dead,
    cleared,
)
LAWS = (*OF_THE_STORE, *OF_WHAT_WAS_TOLD, suspects_run_alone)


def broken_by(scene: Scene, before: World, step: Step) -> Iterator[str]:
    """Yield the violations of this step, each with the name of its law."""
    laws: tuple[Callable[[Scene, World, Step], Wrong], ...] = (suspects_run_alone,)
    if step.told:
        laws += OF_WHAT_WAS_TOLD
    if step.after.db is not before.db:
        laws += OF_THE_STORE
    for law in laws:
        for sentence in law(scene, before, step):
            yield f"{law.__name__}: {sentence}"


def is_over(world: World) -> bool:
    """Return whether every job has ended."""
    return all(job.state in ENDED for job in world.db.jobs)


def _is(world: World, told: Told) -> str:
    job = world.db.jobs[told.job]
    return f"is {job.state} under {job.token}"


def _end_of(world: World, told: Told) -> str:
    end = _whole_end_of(world, told)
    return end.outcome if end else ""


def _whole_end_of(world: World, told: Told) -> End | None:
    ends = [held.end for slot in world.slots for held in slot.held if held.end]
    ends += [late.end for slot in world.slots for late in slot.late if late.end]
    return next((end for end in ends if end.token == told.token), None)
