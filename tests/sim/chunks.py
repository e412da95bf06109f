"""Plays many seeds, a few at a time in a forked process: what a seed has killed is never unwound,
and goes away with that process."""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from tests.sim.world import World

CHUNK = 20  # seeds in one process
FILES = 1_000  # that a seed may leave open: of killed workers, which close nothing

keep: list[World] = []


@dataclass
class Figures:
    """What was played. ``failure`` is the story of the first violation."""

    seeds: int = 0
    hours: float = 0.0
    events: int = 0
    quiet_seconds_max: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failure: str = ""

    def add(self, other: Figures) -> None:
        """Add the figures of others."""
        self.seeds += other.seeds
        self.hours += other.hours
        self.events += other.events
        self.quiet_seconds_max = max(self.quiet_seconds_max, other.quiet_seconds_max)
        self.faults.update(other.faults)
        self.failure = self.failure or other.failure


W = TypeVar("W", bound=World)
Patches = Iterable[AbstractContextManager[Any]]
Twins = Mapping[str, tuple[Callable[[], Patches], int]]
"""By name: what takes a guard away, and a seed that notices it soon."""


def live_through(seed: int, *, memory: int | None = 60) -> World:
    """Play one seed in this process, which then has to end without unwinding."""
    return live_in(World(seed, memory=memory))


def live_in(world: W) -> W:
    """Play the seed of this world."""
    gc.disable()  # what was killed must not be collected: that would unwind it
    _make_room_for_files()
    keep.append(world)
    world.run()
    return world


def _make_room_for_files() -> None:
    """Allow what one more seed may leave open. Raises RuntimeError where this process may not have
    them: its stores would fail, as if the code did."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/dev/fd")) + FILES
    if soft != resource.RLIM_INFINITY and needed > soft:
        if hard != resource.RLIM_INFINITY and needed > hard:
            raise RuntimeError(
                f"{len(keep)} seeds have left {needed - FILES} files open, and this process may"
                f" have {hard}: play fewer seeds at once, or raise the limit (ulimit -Hn)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def figures_of(world: World) -> Figures:
    """Return the figures of one seed."""
    return Figures(
        seeds=1,
        hours=(world.loop.now - 1_000) / 3600,
        events=sum(world.witness.counts.values()),
        quiet_seconds_max=world.quiet_took,
        faults=world.plan.seen,
        failure=story_of(world) if world.witness.violations else "",
    )


def story_of(world: World) -> str:
    """Return what happened in a failure, and how to play it again."""
    lines = [f"seed {world.seed}: {len(world.witness.violations)} violations"]
    lines += [f"  {sentence}" for sentence in world.witness.violations]
    lines += ["the last events:", *(f"  {line}" for line in world.witness.story())]
    lines += [f"again: python -m tests.sim {world.seed}"]
    lines += [f"all of it: python -m tests.sim --story {world.seed}"]
    return "\n".join(lines)


def live_through_all(first: int, last: int, jobs: int) -> Iterator[Figures]:
    """Yield the figures of each chunk of seeds, ``jobs`` processes at a time."""
    waiting = list(range(first, last + 1, CHUNK))
    running: dict[int, int] = {}  # process -> its pipe
    while waiting or running:
        while waiting and len(running) < jobs:
            begin = waiting.pop(0)
            end = min(last, begin + CHUNK - 1)
            pid, pipe = forked(lambda begin=begin, end=end: vars(_chunk(begin, end)))  # type: ignore[misc]
            running[pid] = pipe
        pid = next(iter(running))
        told = answer_of(pid, running.pop(pid))
        yield Figures(**{**told, "faults": Counter(told["faults"])})


def _chunk(first: int, last: int) -> Figures:
    whole = Figures()
    for seed in range(first, last + 1):
        whole.add(figures_of(live_through(seed)))
        if whole.failure:
            break
    return whole


def play_kind(
    make: Callable[[int], W],
    twins: Twins,
    count: Callable[[W], Any],
    tell: Callable[[list[Any]], str],
) -> NoReturn:
    """Be the program of one kind of worlds, FIRST LAST [TWIN]: play seeds, without the guard of the
    twin. Print the first violation, and exit with 1; or what ``tell`` says of what ``count`` has
    returned of each world."""
    first, last, twin = int(sys.argv[1]), int(sys.argv[2]), " ".join(sys.argv[3:])
    counts: list[Any] = []
    hours = 0.0
    with ExitStack() as stack:
        for patch in twins[twin][0]() if twin else ():
            stack.enter_context(patch)
        for begin in range(first, last + 1, CHUNK):
            seeds = range(begin, min(last + 1, begin + CHUNK))
            play = functools.partial(_played, make, seeds, count)
            for wrong, hour, counted in answer_of(*forked(play)):
                if wrong:
                    print(wrong)
                    sys.exit(1)
                hours += hour
                counts.append(counted)
    told = f"{tell(counts)}; {hours:.2f} simulated hours"
    print(f"{last - first + 1} seeds, 0 violations, {told}")
    sys.exit(0)


def _played(
    make: Callable[[int], W], seeds: Iterable[int], count: Callable[[W], Any]
) -> list[tuple[str, float, Any]]:
    played: list[tuple[str, float, Any]] = []
    for seed in seeds:
        world = live_in(make(seed))
        if wrong := world.witness.violations:
            return [(f"seed {seed}: {wrong[0]}", 0.0, None)]
        played.append(("", (world.loop.now - 1_000) / 3600, count(world)))
    return played


def forked(job: Callable[[], Any]) -> tuple[int, int]:
    """Do a job in a process of its own; return the process and the pipe of its answer."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    code = 1
    try:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            json.dump(job(), pipe)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def answer_of(pid: int, pipe: int) -> Any:
    """Return what a forked process has answered. Raises RuntimeError if it died."""
    with os.fdopen(pipe) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"a process of the simulation died: {os.waitstatus_to_exitcode(status)}")
    return json.loads(text)
