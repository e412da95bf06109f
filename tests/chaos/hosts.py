"""A chaos run with workers, clients and servers on hosts of their own (harness/namespaces.py)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator

from tests.chaos.bed import Bed
from tests.chaos.host_deeds import deeds_between
from tests.chaos.nemesis import Deed, Ground
from tests.chaos.pair import URL
from tests.chaos.run import Chaos
from tests.chaos.supervisor import Member, Supervisor
from tests.chaos.timetable import Timetable


class HostsApart(Chaos):
    """Plays a plan in the network of the calling process, which has to be one of its own."""

    def _deeds(self, _ground: Ground) -> dict[str, Deed]:
        return deeds_between(self._plan.only)

    @contextlib.asynccontextmanager
    async def _ground(self) -> AsyncIterator[Ground]:
        plan = self._plan
        bed = Bed(plan.folder, plan.workers, plan.seed, synchronous=not plan.asynchronous)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(bed.close)
            bed.start()
            assert bed.pair is not None
            self._clients_url, self._clients_prefix = URL, bed.clients.enter()
            self._clients_env = bed.environment(bed.clients)
            scene = await self._scene(stack, URL)
            members = [Member(scene, number, URL, bed) for number in range(plan.workers)]
            supervisor = Supervisor(members, random.Random(plan.seed))
            stack.callback(supervisor.kill)
            yield Ground(
                scene=scene,
                supervisor=supervisor,
                server=bed.pair.primary,
                timetable=Timetable(scene.store),
                bed=bed,
            )
