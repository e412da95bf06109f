"""Counts what a worker has and its tasks use, such as GPUs: ``--has gpu=2``, ``uses={"gpu": 1}``.

Units are counted on the worker alone, from the claim of an attempt to its end. A job that uses some
is requested apart from others, and no more of them than there are free units for. So that these
places are not kept empty while no such job waits, one that was asked for and not given is left out
of the requests for a moment, in which the other tasks may have all places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from outlast.base.clock import Clock
from outlast.store.values import ClaimRequest, Exchanged
from outlast.worker.claims.in_flight import InFlight

LEFT_OUT_SECONDS = 0.25

Uses = Mapping[str, Mapping[str, int]]
"""Task -> unit -> how many of it an attempt uses."""


class Units:
    """The units of one worker.

    Args:
        has: unit -> how many of it the worker has.
        uses: returns what the tasks of the worker use; tasks that use nothing are not in it.
    """

    def __init__(
        self, has: Mapping[str, int], uses: Callable[[], Uses], in_flight: InFlight, clock: Clock
    ) -> None:
        self._has = has
        self._uses = uses
        self._in_flight = in_flight
        self._clock = clock
        self._asked: dict[tuple[str, ...], int] = {}  # tasks -> how many jobs were requested
        self._left_out: dict[tuple[str, ...], float] = {}  # tasks -> until when
        self._turn = 0

    def hint(self) -> None:
        """Note that there may be new jobs, also such as use units."""
        self._left_out.clear()

    def narrow(self, requests: list[ClaimRequest]) -> list[ClaimRequest]:
        """Return the requests for no more jobs than there are units for."""
        self._asked = {}
        uses = self._uses()
        if not uses:
            return requests
        free = Counter(self._has)
        for running in self._in_flight.running.values():
            free.subtract(uses.get(running.claimed.task, {}))
        self._turn += 1
        return [each for request in requests for each in self._split(request, uses, free)]

    def _split(self, request: ClaimRequest, uses: Uses, free: Counter[str]) -> list[ClaimRequest]:
        split, left = [], request.limit
        for tasks in self._group(request, uses):
            used = uses[tasks[0]]
            most = min(left, *(free[unit] // count for unit, count in used.items()))
            if most <= 0:
                continue
            free.subtract({unit: count * most for unit, count in used.items()})
            split.append(msgspec.structs.replace(request, tasks=[*tasks], limit=most))
            left -= most
            if not request.solo:
                self._asked[tasks] = self._asked.get(tasks, 0) + most
        plain = [task for task in request.tasks if task not in uses]
        if plain and left:
            split.append(msgspec.structs.replace(request, tasks=plain, limit=left))
        return split

    def _group(self, request: ClaimRequest, uses: Uses) -> list[tuple[str, ...]]:
        """Return the tasks of a request that use the same units, and are not left out now; each
        time another group comes first."""
        groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for task in request.tasks:
            if task in uses:
                groups.setdefault(tuple(sorted(uses[task].items())), []).append(task)
        now = self._clock.boot()
        named = [tuple(tasks) for _, tasks in sorted(groups.items())]
        first = self._turn % len(named) if named else 0
        return [
            tasks
            for tasks in named[first:] + named[:first]
            if request.solo or now >= self._left_out.get(tasks, now)
        ]

    def take_reply(self, reply: Exchanged) -> bool:
        """Note the reply to the narrowed requests. Return whether another trip is useful at once:
        fewer jobs that use units were given than asked for, and other tasks may have the places."""
        given = Counter(each.task for each in reply.claimed if not each.solo)
        short = [
            tasks
            for tasks, count in self._asked.items()
            if sum(given[task] for task in tasks) < count
        ]
        until = self._clock.boot() + LEFT_OUT_SECONDS
        self._left_out.update(dict.fromkeys(short, until))
        self._asked = {}
        return bool(short)
