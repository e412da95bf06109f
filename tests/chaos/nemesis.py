"""The plan of faults: phases, each with a mix of deeds of its own, every fourth one calm.

All choices come from one seed: the same seed makes the same plan. What the processes do meanwhile
is up to the machine, so a replay has the same faults, not at the same instants.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

from harness.nats_server import NatsServer
from harness.proxy import Proxy
from harness.scene import Scene, boot
from harness.servers import PostgresServer
from tests.chaos.bed import Bed
from tests.chaos.disk import Disk
from tests.chaos.supervisor import Member, Supervisor
from tests.chaos.timetable import Timetable

CALM = 0.25  # of the phases
PHASE_SECONDS = (3.0, 10.0)
PACE_SECONDS = (0.4, 2.5)
MIX_MAX = 5


class Ground(msgspec.Struct, kw_only=True):
    """All targets of faults. ``proxies``: in front of the database, one per client; or ``bed``:
    the hosts that all of it runs on. ``clock``: the file that says how far the database's clock is
    off."""

    scene: Scene
    supervisor: Supervisor
    timetable: Timetable
    disk: Disk | None = None
    server: PostgresServer | None = None
    proxies: list[Proxy] = []
    messenger: NatsServer | None = None
    clock: Path | None = None
    bed: Bed | None = None


class Step(msgspec.Struct, frozen=True):
    """One deed. ``at`` is in seconds from the beginning; ``seed`` is for its own choices."""

    at: float
    name: str
    seed: float


class Phase(msgspec.Struct, frozen=True):
    """A span of time with a mix of deeds of its own, or none."""

    end: float
    steps: list[Step]


def phases(rng: random.Random, seconds: float, names: list[str]) -> Iterator[Phase]:
    """Return the whole plan: it depends on nothing but this."""
    now = 0.0
    while now < seconds:
        began_at, now = now, min(seconds, now + rng.uniform(*PHASE_SECONDS))
        mix = rng.sample(names, rng.randint(1, min(MIX_MAX, len(names))))
        pace, calm = rng.uniform(*PACE_SECONDS), rng.random() < CALM
        steps, at = [], began_at
        while (at := at + pace * rng.uniform(0.5, 1.5)) < now:
            steps.append(Step(at, rng.choice(mix), rng.random()))
        yield Phase(now, [] if calm else steps)


Deed = Callable[["Nemesis", random.Random], Awaitable[bool]]


class Nemesis:
    """Does harm for a while, then undoes what can be undone."""

    def __init__(self, ground: Ground, deeds: Mapping[str, Deed], seed: int) -> None:
        self.ground = ground
        self.supervisor = ground.supervisor
        self.done: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self._deeds = deeds
        self._rng = random.Random(seed)
        self._log = ground.scene.folder / "faults"
        self.messenger = asyncio.Lock()
        self.database = asyncio.Lock()  # one fault of the whole database at a time

    async def torment(self, seconds: float) -> None:
        """Do harm for so long; return when all of it is over."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        doing: list[asyncio.Task[None]] = []
        for phase in phases(self._rng, seconds, list(self._deeds)):
            self.phases["faults" if phase.steps else "calm"] += 1
            for step in phase.steps:
                await asyncio.sleep(began_at + step.at - loop.time())
                doing.append(asyncio.create_task(self._do(step), name=step.name))
            await asyncio.sleep(began_at + phase.end - loop.time())
        await asyncio.gather(*doing)

    async def _do(self, step: Step) -> None:
        if await self._deeds[step.name](self, random.Random(step.seed)):
            self.done[step.name] += 1

    def tell(self, event: str, **fields: object) -> None:
        """Note what is done, for people and for the recovery times."""
        with self._log.open("a") as log:
            log.write(json.dumps({"event": event, "at": boot(), **fields}) + "\n")

    def hit(self, event: str, member: Member, runners: list[psutil.Process]) -> None:
        """Note that these runners' attempts have been interrupted."""
        self.tell(event, worker=member.name, runners=[runner.pid for runner in runners])

    def some(self, rng: random.Random) -> Member | None:
        """Return a live member that is under no deed."""
        there = self.supervisor.alive()
        return rng.choice(there) if there else None
