"""All steps that are possible in a world: by its workers, to them, and by others.

A step has what was asked of the store and what it answered, for the laws. ``harm`` marks what a
fault, a task's own failing or an operator does: a world in which nothing of that happens any more
must be able to end every job.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.decisions import Decisions
from tests.model.desk import LIVE, Desk
from tests.model.scenes import Scene
from tests.model.state import End, Held, Late, Me, Slot, World, tokens_of
from tests.model.transition import (
    NAMES,
    Step,
    Told,
    gone,
    held_of,
    named,
    replaced,
    step_of,
    without,
)

RUNNERS = 2  # of a worker that take suspects at the same time


class Steps:
    """The transition relation of one scene."""

    def __init__(self, scene: Scene, desk: Desk) -> None:
        self.scene = scene
        self.desk = desk
        self.decisions = Decisions(scene.policy)

    def of(self, world: World) -> Iterator[Step]:
        """Yield all possible next steps."""
        for index, slot in enumerate(world.slots):
            yield from self._of_worker(world, index, slot)
        yield from self._of_others(world)

    # -- a worker

    def _of_worker(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        scene, name = self.scene, f"worker {i + 1}"
        if slot.late:
            yield from self._late(world, i, slot)
        if not slot.up:
            yield from self._starts(world, i, slot)
            return
        if scene.crashes:
            dead = slot._replace(up=False, me=0, trusts=False, draining=False, broken=0)
            dead = dead._replace(held=(), reply=(), since=False, current=True)
            if scene.wills and slot.me == 1:
                dead = dead._replace(late=(Late("will", live=True, current=True),))
            yield step_of(f"{name} dies", world, i, dead, harm=True)
        if slot.reply:
            yield from self._hears(world, i, slot)
        elif slot.broken and slot.trusts:
            yield from self._repairs(world, i, slot)
        else:
            yield from self._claims(world, i, slot)
            yield from self._hands_in(world, i, slot)
        yield from self._runs(world, i, slot)
        yield from self._loses(world, i, slot)
        if scene.drains:
            yield from self._leaves(world, i, slot)

    def _me(self, i: int, slot: Slot) -> Me:
        return Me(i, slot.me == 1, slot.current)

    def _starts(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        if world.db.rows[i] and not self.scene.in_place:
            return
        replaces = bool(world.db.rows[i])
        db, _ = self.desk.register(world.db, i, replaces=replaces)
        fresh = Slot(up=True, me=1, trusts=True, late=gone(slot.late))
        yield step_of(f"worker {i + 1} starts", world, i, fresh, db)

    def _claims(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        if not slot.trusts or slot.draining:
            return
        for solo in self._requests(slot):
            db, claims = self.desk.claim(world.db, self._me(i, slot), solo, max(tokens_of(world)))
            if not claims:
                continue
            reply = tuple(held_of(world.db, *claim) for claim in claims)
            told = tuple(Told("claim", i, job, token, "", value) for job, token, value in claims)
            words = f"worker {i + 1} claims {named(reply)}" + (f" (solo {solo})" if solo else "")
            yield step_of(words, world, i, slot._replace(reply=reply), db, told)
        if self.scene.lates and not slot.late and any(j.state == "queued" for j in world.db.jobs):
            late = Late("claim", slot.me == 1, slot.current)
            given_up = slot._replace(late=(late,), broken=1)
            yield step_of(f"worker {i + 1} gives up a claim", world, i, given_up, harm=True)

    def _requests(self, slot: Slot) -> list[int]:
        """What it asks for: as ``Assignment`` and ``AloneInWorker`` do."""
        running = [held for held in slot.held if not held.end]
        if any(held.solo == 2 for held in running):
            return []
        requests = [0] if len([h for h in slot.held if h.solo == 0]) < self.scene.slots else []
        requests += [1] if sum(held.solo == 1 for held in slot.held) < RUNNERS else []
        return requests + ([2] if not slot.held else [])

    def _hears(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        """The reply to a claim: received, or lost."""
        may = slot.trusts and not slot.draining and not slot.since
        ends = self.decisions.own
        heard = tuple(
            held if may else held._replace(end=ends(held, "released")) for held in slot.reply
        )
        held = tuple(sorted((*slot.held, *heard)))
        told = tuple(Told("start", i, h.job, h.token, "") for h in heard) if may else ()
        after = slot._replace(reply=(), since=False, held=held)
        yield step_of(f"worker {i + 1} hears of {named(slot.reply)}", world, i, after, told=told)
        if self.scene.losses:
            lost = slot._replace(reply=(), since=False, broken=1)
            yield step_of(f"worker {i + 1} never hears of its claim", world, i, lost, harm=True)

    def _hands_in(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        for held in slot.held:
            if not held.end:
                continue
            yield from self._hands_in_one(world, i, slot, held, held.end)

    def _hands_in_one(
        self, world: World, i: int, slot: Slot, held: Held, end: End
    ) -> Iterator[Step]:
        words = f"worker {i + 1} hands in the {end.outcome} of {named((held,))}"
        db, answer = self.desk.hand_in(world.db, end)
        told = (Told("end", i, end.job, end.token, answer),)
        left = slot._replace(held=without(slot.held, held))
        yield step_of(f"{words}: {answer}", world, i, left, db, told)
        broken = slot._replace(broken=1)
        if self.scene.losses and (db != world.db or not slot.broken):
            yield step_of(f"{words}: {answer}, reply lost", world, i, broken, db, told, harm=True)
        if self.scene.lates and not slot.late:
            late = Late("end", slot.me == 1, slot.current, end=end)
            after = broken._replace(late=(late,))
            yield step_of(f"{words}: given up", world, i, after, harm=True)

    def _repairs(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        """Reconnect, then reconcile."""
        me, name = self._me(i, slot), f"worker {i + 1}"
        if slot.broken == 1:
            db, stands = self.desk.reconnect(world.db, me)
            late = tuple(each._replace(current=False) for each in slot.late)
            after = slot._replace(current=True, broken=2, late=late)
            if not stands:
                after = self._fenced(slot)
            yield step_of(f"{name} reconnects", world, i, after, db)
            return
        yield from self._reconciles(world, i, slot)

    def _reconciles(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        me, name = self._me(i, slot), f"worker {i + 1}"
        held = tuple(each.token for each in slot.held)
        db, tokens = self.desk.reconcile(world.db, me, held)
        told = tuple(
            Told("reconcile", i, index, job.token, "")
            for index, job in enumerate(world.db.jobs)
            if job.token in tokens
        )
        if slot.broken or tokens:
            yield step_of(f"{name} reconciles", world, i, slot._replace(broken=0), db, told)
        if self.scene.losses and tokens:
            lost = slot._replace(broken=1)
            yield step_of(f"{name} reconciles, reply lost", world, i, lost, db, told, harm=True)
        if self.scene.lates and not slot.late:
            late = Late("reconcile", slot.me == 1, slot.current, held=held)
            after = slot._replace(late=(late,), broken=1)
            yield step_of(f"{name} gives up a reconcile", world, i, after, harm=True)

    def _runs(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        """What its runners and their tasks do."""
        for held in slot.held:
            if held.end:
                continue
            row = world.db.jobs[held.job]
            mine = row.state == "running" and row.token == held.token
            words = self.scene.ends if not row.kills else ()
            if mine and row.cancel:
                words = (*words, "cancelled")
            if slot.draining:
                words = (*words, "released")
            for word in words:
                yield self._ends(world, i, slot, held, word)
            if not mine:
                yield self._ends(world, i, slot, held, "lost_lease")
            if self.scene.saves:
                yield from self._saves(world, i, slot, held)
            if self.scene.complete_in:
                yield from self._completes_in(world, i, slot, held)
        yield from self._dies_of_a_task(world, i, slot)

    def _ends(self, world: World, i: int, slot: Slot, held: Held, word: str) -> Step:
        over = held._replace(end=self.decisions.own(held, word))
        after = slot._replace(held=replaced(slot.held, held, over))
        told = (Told(f"ended {word}", i, held.job, held.token, ""),)
        harm = word not in {"completed", "cancelled", "released", "lost_lease"}
        words = f"{named((held,))} ends as {word} in worker {i + 1}"
        return step_of(words, world, i, after, told=told, harm=harm)

    def _dies_of_a_task(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        running = [held for held in slot.held if not held.end]
        shared = tuple(sorted(held for held in running if not held.solo))
        for together in (shared, *((held,) for held in running if held.solo)):
            if not any(world.db.jobs[held.job].kills for held in together):
                continue
            ends = self.decisions.died_together(together)
            rest = tuple(held for held in slot.held if held not in together)
            over = tuple(h._replace(end=e) for h, e in zip(together, ends, strict=True))
            after = slot._replace(held=tuple(sorted((*rest, *over))))
            told = tuple(Told(f"died {e.charge}", i, e.job, e.token, "") for e in ends)
            words = f"{named(together)} die{'s' if len(together) == 1 else ' together'}"
            yield step_of(f"{words} in a runner of worker {i + 1}", world, i, after, told=told)

    def _saves(self, world: World, i: int, slot: Slot, held: Held) -> Iterator[Step]:
        if held.saved >= self.scene.saves:
            return
        number, who = held.saved + 1, named((held,))
        value = 1 + (held.value + 1) % 3
        db, answer = self.desk.save(world.db, held.job, held.token, number, value)
        told = (Told("save", i, held.job, held.token, answer, value),)
        if answer == "refused":
            after = self.decisions.own(held, "lost_lease")
            over = slot._replace(held=replaced(slot.held, held, held._replace(end=after)))
            yield step_of(f"{who} saves {value}: refused", world, i, over, db, told)
            return
        saved = held._replace(saved=number, value=value, losses=0)
        after_save = slot._replace(held=replaced(slot.held, held, saved))
        yield step_of(f"{who} saves {value}: {answer}", world, i, after_save, db, told)
        if self.scene.losses and answer == "accepted":
            yield step_of(f"{who} saves {value}, reply lost", world, i, slot, db, told, harm=True)
        if self.scene.lates and not slot.late:
            late = Late("save", True, True, save=(held.job, held.token, number, value))
            after_late = slot._replace(late=(late,))
            yield step_of(f"{who} saves {value}: given up", world, i, after_late, harm=True)

    def _completes_in(self, world: World, i: int, slot: Slot, held: Held) -> Iterator[Step]:
        db, done = self.desk.complete_in(world.db, held.job, held.token)
        word = "completion_not_committed" if done else "lost_lease"
        over = held._replace(end=self.decisions.own(held, word))
        after = slot._replace(held=replaced(slot.held, held, over))
        told = (Told("complete_in", i, held.job, held.token, "accepted" if done else "refused"),)
        words = f"{named((held,))} completes in its own transaction"
        yield step_of(f"{words}: {told[0].answer}", world, i, after, db, told)
        if done:
            yield step_of(f"{words}: rolled back", world, i, after, harm=True)

    def _fenced(self, slot: Slot) -> Slot:
        """The lease is lost: every attempt is stopped."""
        held = tuple(
            each if each.end else each._replace(end=self.decisions.own(each, "lost_lease"))
            for each in slot.held
        )
        return slot._replace(trusts=False, held=held, broken=0)

    def _loses(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        name = f"worker {i + 1}"
        if slot.trusts and slot.me == 2:
            yield step_of(f"{name} hears that its lease is lost", world, i, self._fenced(slot))
        elif slot.trusts and self.scene.lapses:
            yield step_of(f"{name} lapses", world, i, self._fenced(slot), harm=True)
        if not slot.trusts and not slot.draining:
            db, _ = self.desk.set_status(world.db, self._me(i, slot), "stopped")
            db, _ = self.desk.register(db, i, replaces=False)
            after = slot._replace(me=1, trusts=True, current=True, late=gone(slot.late))
            after = after._replace(since=bool(slot.reply))
            yield step_of(f"{name} registers again", world, i, after, db)

    def _leaves(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        me, name = self._me(i, slot), f"worker {i + 1}"
        if not slot.draining:
            if slot.trusts:
                db, _ = self.desk.set_status(world.db, me, "draining")
                yield step_of(
                    f"{name} drains", world, i, slot._replace(draining=True), db, harm=True
                )
        elif not slot.held and not slot.reply:
            db, _ = self.desk.set_status(world.db, me, "stopped")
            yield step_of(f"{name} stops", world, i, Slot(late=gone(slot.late)), db)

    # -- what arrives late

    def _late(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        (late,) = slot.late
        after, words = slot._replace(late=()), f"a given up {late.verb} of worker {i + 1}"
        yield step_of(f"{words} is dropped", world, i, after)
        if late.verb == "will":
            yield from self._is_told_gone(world, i, after, live=late.live)
            return
        me, desk = Me(i, late.live, late.current), self.desk
        told: tuple[Told, ...] = ()
        if late.verb == "claim":
            db, claims = desk.claim(world.db, me, late.solo, max(tokens_of(world)))
            told = tuple(
                Told("claim" if late.current and late.live else "stale claim", i, j, t, "", v)
                for j, t, v in claims
            )
        elif late.end:
            db, answer = desk.hand_in(world.db, late.end)
            told = (Told("end", i, late.end.job, late.end.token, answer),)
        elif late.save:
            db, answer = desk.save(world.db, *late.save)
            told = (Told("save", i, late.save[0], late.save[1], answer, late.save[3]),)
        else:
            db, _ = desk.reconcile(world.db, me, late.held)
        if db != world.db:
            yield step_of(f"{words} arrives", world, i, after, db, told)

    def _is_told_gone(self, world: World, i: int, after: Slot, *, live: bool) -> Iterator[Step]:
        """The will of an earlier process of this worker arrives, and a reaper acts on it."""
        db, marked = self.desk.tell_gone(world.db, i, live=live)
        told = (Told("is told gone", i, -1, 0, "accepted" if marked else ""),)
        if db != world.db:
            yield step_of(f"worker {i + 1} is told gone", world, i, after, db, told)

    # -- others

    def _of_others(self, world: World) -> Iterator[Step]:
        for i, slot in enumerate(world.slots):
            yield from self._reaped(world, i, slot)
        for index, job in enumerate(world.db.jobs):
            orphan = job.state == "running" and job.owner > len(world.slots)
            if orphan:
                end = self.decisions.lost(index, job)
                yield self._closed(world, end, "reclaim")
                if self.scene.reapers and not world.pending:
                    words = f"a reaper decides on {NAMES[index]}"
                    yield Step(words, world._replace(pending=(end,)), harm=True)
            elif job.state == "running" and self.scene.overdue:
                end = self.decisions.overdue(index, job)
                yield self._closed(world, end, "overdue", harm=True)
            if self.scene.operators:
                yield from self._operated(world, index)
        for end in world.pending:
            world_then = world._replace(pending=())
            yield Step("a reaper dies with its decision", world_then)
            yield self._closed(world_then, end, "late reclaim")

    def _reaped(self, world: World, i: int, slot: Slot) -> Iterator[Step]:
        if world.db.rows[i] not in LIVE or (slot.up and slot.trusts):
            return
        for proven in (True, False) if not slot.up else (False,):
            db, _ = self.desk.reap(world.db, i, proven=proven)
            after = slot._replace(me=2 if slot.up else 0, late=gone(slot.late))
            words = "is found dead" if proven else "is found silent"
            told = (Told(words, i, -1, 0, ""),)
            yield step_of(f"worker {i + 1} {words}", world, i, after, db, told)

    def _closed(self, world: World, end: End, verb: str, *, harm: bool = False) -> Step:
        db, state = self.desk.close(world.db, end)
        told = (Told(verb, -1, end.job, end.token, "accepted" if state else "refused"),)
        words = f"{NAMES[end.job]} under {end.token}: {verb}, {state or 'refused'}"
        return Step(words, world._replace(db=db), told, harm)

    def _operated(self, world: World, index: int) -> Iterator[Step]:
        job = world.db.jobs[index]
        if job.state in {"queued", "running"} and not job.cancel:
            db, answer = self.desk.cancel(world.db, index)
            told = (Told("cancel", -1, index, 0, answer),)
            yield Step(f"cancel {NAMES[index]}: {answer}", world._replace(db=db), told, harm=True)
        if job.state in {"dead", "cancelled", "completed"}:
            db, answer = self.desk.requeue(world.db, index)
            told = (Told("requeue", -1, index, 0, answer),)
            if db != world.db:
                words = f"requeue {NAMES[index]}"
                yield Step(words, world._replace(db=db), told, harm=True)
