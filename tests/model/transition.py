"""One step of an exploration: its words, the world after it, and what was asked of the store."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.state import Db, Held, Late, Slot, World


class Told(NamedTuple):
    """One thing asked of the store, and its answer. ``slot`` -1: of no worker."""

    verb: str
    slot: int
    job: int
    token: int
    answer: str
    value: int = 0


class Step(NamedTuple):
    """A step: its words, the world after it, what was asked and answered."""

    words: str
    after: World
    told: tuple[Told, ...] = ()
    harm: bool = False


NAMES = "AB"


def step_of(
    words: str,
    world: World,
    i: int,
    slot: Slot,
    db: Db | None = None,
    told: tuple[Told, ...] = (),
    *,
    harm: bool = False,
) -> Step:
    slots = (slot, world.slots[1]) if i == 0 else (world.slots[0], slot)
    return Step(words, World(db or world.db, slots, world.pending), told, harm)


def held_of(db: Db, job: int, token: int, value: int) -> Held:
    row = db.jobs[job]
    return Held(token, job, row.failures, row.losses, row.solo, row.incident, value)


def gone(lates: tuple[Late, ...]) -> tuple[Late, ...]:
    return tuple(each._replace(live=False) for each in lates)


def replaced(held: tuple[Held, ...], before: Held, after: Held) -> tuple[Held, ...]:
    return tuple(after if each is before else each for each in held)


def without(held: tuple[Held, ...], taken: Held) -> tuple[Held, ...]:
    return tuple(each for each in held if each is not taken)


def named(held: tuple[Held, ...]) -> str:
    return " and ".join(f"{NAMES[each.job]} under {each.token}" for each in held)
