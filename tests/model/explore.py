"""Breadth first through every state that a scene can reach, once each.

The first violation that is found is reached by the fewest steps there are. Where the whole graph
was seen, every state must also be able to end all jobs by harmless steps.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.model.desk import Desk
from tests.model.laws import broken_by, is_over
from tests.model.scenes import Scene
from tests.model.state import Db, Job, World, canonical
from tests.model.steps import Steps
from tests.model.transition import Step


@dataclass
class Found:
    """What an exploration has seen. ``path``: the words of the steps that lead to ``wrong``."""

    scene: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    closed: bool = False
    seconds: float = 0.0
    wrong: str = ""
    path: list[str] = field(default_factory=list)

    def line(self) -> str:
        """A row of the table."""
        to = "all" if self.closed else f"{self.depth} steps"
        counted = f"{self.states:>9,} {self.steps:>10,} {to:>9}"
        return f"{self.scene:20} {counted} {self.seconds:>7.1f} s"


def first_world(scene: Scene) -> World:
    """Two jobs in the line, and no worker yet."""
    placed = enumerate(scene.kills, 1)
    jobs = tuple(Job(place=place, kills=kills, losses=scene.lost) for place, kills in placed)
    return canonical(World(Db(jobs)))


def explore(
    scene: Scene,
    *,
    states_max: int = 10**9,
    depth_max: int = 10**9,
    on_depth: Callable[[Found], object] = lambda _: None,
) -> Found:
    """Explore until all is seen, something is wrong, or a limit is reached (then to the end of
    a depth that was begun)."""
    with Desk(scene.policy) as desk:
        return _Exploration(scene, desk).run(states_max, depth_max, on_depth)


class _Exploration:
    def __init__(self, scene: Scene, desk: Desk) -> None:
        self._scene = scene
        self._steps = Steps(scene, desk)
        first = first_world(scene)
        self._ids = {first: 0}
        self._parts: dict[Any, Any] = {}
        self._parents = array("q", [-1])
        self._over = {0} if is_over(first) else set[int]()
        self._from, self._to = array("q"), array("q")
        self.found = Found(scene.name, states=1)

    def run(self, states_max: int, depth_max: int, on_depth: Callable[[Found], object]) -> Found:
        found, started = self.found, time.monotonic()
        frontier = list(self._ids)
        while frontier and found.depth < depth_max and found.states < states_max:
            frontier = self._deeper(frontier)
            found.depth += bool(frontier)
            found.seconds = time.monotonic() - started
            on_depth(found)
            if found.wrong:
                return found
        found.closed = not frontier
        if found.closed:
            self._all_can_end()
        found.seconds = time.monotonic() - started
        return found

    def _deeper(self, frontier: list[World]) -> list[World]:
        found, ids, new = self.found, self._ids, []
        for world in frontier:
            here = ids[world]
            for step in self._steps.of(world):
                found.steps += 1
                after = canonical(step.after)
                for sentence in broken_by(self._scene, world, step):
                    return self._stop(here, sentence)
                there = ids.get(after)
                if there is None:
                    after = self._shared(after)
                    there = ids[after] = found.states
                    found.states += 1
                    self._parents.append(here)
                    new.append(after)
                    if is_over(after):
                        self._over.add(there)
                if not step.harm:
                    self._from.append(here)
                    self._to.append(there)
        return new

    def _shared(self, world: World) -> World:
        """Keep one copy of each part: most states differ from others in one part only."""
        keep = self._parts.setdefault
        db, slots = world.db, world.slots
        jobs = tuple(keep(job, job) for job in db.jobs)
        db = keep(Db(jobs, db.rows, db.closed), Db(jobs, db.rows, db.closed))
        return World(db, tuple(keep(slot, slot) for slot in slots), world.pending)

    def _stop(self, at: int, sentence: str) -> list[World]:
        self.found.wrong, self.found.path = sentence, self._story(at, sentence)
        return []

    def _story(self, at: int, sentence: str = "") -> list[str]:
        """Replay the way to a state, without renaming where that is possible: the words
        of its steps, and of the one that is wrong."""
        way = []
        while at >= 0:
            way.append(at)
            at = self._parents[at]
        states = list(self._ids)
        world = before = first_world(self._scene)
        words = []
        for there in reversed(way[:-1]):
            step = self._step_to(world, states[there]) or self._step_to(before, states[there])
            assert step is not None
            world, before = step.after, states[there]
            words.append(step.words)
        law = sentence.partition(":")[0]
        for step in self._steps.of(world) if sentence else ():
            if any(each.startswith(law) for each in broken_by(self._scene, world, step)):
                return [*words, step.words]
        return words

    def _step_to(self, world: World, goal: World) -> Step | None:
        steps = self._steps.of(world)
        return next((step for step in steps if canonical(step.after) == goal), None)

    def _all_can_end(self) -> None:
        """Guarantee 1: from every state all jobs can end once there are no more faults."""
        into: dict[int, list[int]] = {}
        for here, there in zip(self._from, self._to, strict=True):
            into.setdefault(there, []).append(here)
        seen, waiting = set(self._over), list(self._over)
        while waiting:
            for here in into.get(waiting.pop(), ()):
                if here not in seen:
                    seen.add(here)
                    waiting.append(here)
        stuck = next((at for at in range(self.found.states) if at not in seen), None)
        if stuck is not None:
            self.found.wrong = "no_job_is_lost: from here on some job can never end"
            self.found.path = self._story(stuck)
