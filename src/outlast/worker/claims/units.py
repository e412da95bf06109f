"""Counts what a worker has and its tasks use, such as GPUs: ``--has gpu=2``, ``uses={"gpu": 1}``.

Units are counted on the worker alone, from the claim of an attempt to its end. Tasks with the same
uses are a group, and so are those that use nothing. Each group is requested apart, for no more jobs
than there are free units, and the groups take turns to come first, so that none starves another;
their priorities do not count here. A group without a job is left out for a moment.

Jobs that need few units would take each unit as it becomes free, and a job that needs more would
never start. So units are kept for a group that has not fit for a while, if a job of it waits and
none runs. That job may be unable to start: its limit is full, or only others serve its queue. So
after units were kept for nothing, none are kept for that group for ten times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf

import msgspec

from outlast.base.clock import Clock
from outlast.store.values import ClaimRequest, Exchanged
from outlast.worker.base import AttemptStarter
from outlast.worker.claims.in_flight import InFlight

LEFT_OUT_SECONDS = 0.25
UNFIT_SECONDS = 1.0  # for which a group has not fit before its units are kept for it
UNUSED_SECONDS = 60.0  # for which units that were kept for nothing are not kept again; at least
UNUSED_TIMES = 10  # times as long as they were kept

Uses = Mapping[str, Mapping[str, int]]
"""Task -> unit -> how many of it an attempt uses."""


class Units:
    """The units that one worker has. ``starter`` knows what its tasks use."""

    def __init__(
        self, has: Mapping[str, int], starter: AttemptStarter, in_flight: InFlight, clock: Clock
    ) -> None:
        self._has = has
        self._starter = starter
        self._in_flight = in_flight
        self._clock = clock
        self._asked: set[tuple[str, ...]] = set()  # the groups of which jobs were requested
        self._left_out: dict[tuple[str, ...], float] = {}  # tasks -> until when
        self._is_squeezed = False  # whether a group had fewer places than it could have used
        self._turn = 0
        self._first: tuple[str, ...] = ()  # the tasks that came first in the last requests
        self._first_at: dict[tuple[str, ...], int] = {}  # tasks -> the turn in which they did
        self._unfit: dict[tuple[str, ...], float] = {}  # tasks -> since when they have not fit
        self._kept: tuple[str, ...] = ()  # the tasks for which units are kept
        self._kept_at = 0.0  # since when

    def find_unfit(self) -> tuple[str, ...]:
        """Return the tasks of a group that has not fit for a while, or (). If a job of them waits,
        the caller calls ``keep_for``."""
        now = self._clock.boot()
        tasks = next((each for each, at in self._unfit.items() if now - at >= UNFIT_SECONDS), ())
        if self._kept or not tasks:
            return ()
        self._unfit[tasks] = now
        return tasks

    def keep_for(self, tasks: tuple[str, ...]) -> None:
        """Keep the units that a job of this group needs, until it was asked for."""
        self._kept, self._kept_at = tasks, self._clock.boot()

    def narrow(self, requests: list[ClaimRequest], *, is_hinted: bool) -> list[ClaimRequest]:
        """Return the requests for no more jobs than there are units for. ``is_hinted``: there may
        be new jobs, so no group is left out."""
        if is_hinted:
            self._left_out.clear()
        self._asked, self._is_squeezed = set(), False
        uses = self._starter.declared().uses
        if not uses:
            return requests
        free = Counter(self._has)
        for running in self._in_flight.running.values():
            free.subtract(uses.get(running.claimed.task, {}))
        if self._kept and all(self._kept not in self._group(each, uses) for each in requests):
            self._kept = ()  # it is paused, or its code is gone
        self._first = ()
        return [each for request in requests for each in self._split(request, uses, free)]

    def _split(self, request: ClaimRequest, uses: Uses, free: Counter[str]) -> list[ClaimRequest]:
        groups, now = self._group(request, uses), self._clock.boot()
        others = [each for each in groups if now >= self._left_out.get(each, now)]
        active = groups if request.solo else others or groups
        split, left = [], request.limit
        self._first = self._first or active[0]
        busy = {running.claimed.task for running in self._in_flight.running.values()}
        kept = Counter(uses.get(self._kept[0], {}) if self._kept in groups else {})
        for tasks in active:
            used = uses.get(tasks[0], {})
            own = free if tasks == self._kept or request.solo else free - kept
            fits = min([request.limit, *(own[unit] // count for unit, count in used.items())])
            self._note_fit(tasks, used, is_served=fits > 0 or not busy.isdisjoint(tasks), now=now)
            self._is_squeezed |= left < fits and len(others) > 1
            if (most := min(left, fits)) <= 0:
                continue
            free.subtract({unit: count * most for unit, count in used.items()})
            split.append(msgspec.structs.replace(request, tasks=[*tasks], limit=most))
            left -= most
            if len(groups) > 1 and not request.solo:
                self._asked.add(tasks)
        return split

    def _note_fit(
        self, tasks: tuple[str, ...], used: Mapping[str, int], *, is_served: bool, now: float
    ) -> None:
        if not is_served and all(self._has.get(unit, 0) >= used[unit] for unit in used):
            self._unfit.setdefault(tasks, now)
        elif self._unfit.get(tasks, inf) <= now:
            del self._unfit[tasks]

    def _group(self, request: ClaimRequest, uses: Uses) -> list[tuple[str, ...]]:
        """Return the tasks of a request by their uses; the longest-waiting group is first."""
        groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for task in request.tasks:
            groups.setdefault(tuple(sorted(uses.get(task, {}).items())), []).append(task)
        named = [tuple(tasks) for _, tasks in sorted(groups.items(), reverse=True)]
        return sorted(named, key=lambda tasks: self._first_at.get(tasks, 0))

    def take_reply(self, reply: Exchanged) -> bool:
        """Note the reply. Return whether another trip is useful at once: a group was given nothing,
        and others could have used its places."""
        if not self._asked:
            return False
        self._turn += 1
        self._first_at[self._first] = self._turn
        given = Counter(each.task for each in reply.claimed if not each.solo)
        empty = [each for each in self._asked if not any(given[task] for task in each)]
        if reply.cut:
            empty = []
        now = self._clock.boot()
        self._left_out.update(dict.fromkeys(empty, now + LEFT_OUT_SECONDS))
        if self._kept in self._asked:
            if self._kept in empty:
                rest = max(UNUSED_SECONDS, UNUSED_TIMES * (now - self._kept_at))
                self._unfit[self._kept] = now + rest
            self._kept = ()
        is_useful = bool(empty) and self._is_squeezed
        self._asked, self._is_squeezed = set(), False
        return is_useful
