"""A small pure model of permits, and the laws that each store has to keep (docs/limits.md).

What becomes of a job at its end is taken from the store: other tests have the lifecycle. The model
says which jobs may start, and counts what has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import floor

from outlast.model.job import State
from outlast.model.limits import Need
from outlast.store.values import NewJob


@dataclass
class LimitedJob:
    """A job of the history."""

    new: NewJob
    needs: tuple[Need, ...]
    state: State = State.QUEUED
    due: bool = True
    solo: int = 0


@dataclass
class ModelLimit:
    """What a limit allows; ``keys``: own counts. ``held``: until when, by key ("": all)."""

    running: int | None = None
    spacing: float | None = None
    burst: float = 1.0
    keys: dict[str, int] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)


class LimitModel:
    """Jobs under limits on a clock that never steps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: dict[int, LimitedJob] = {}
        self.limits: dict[str, ModelLimit] = {}
        self.ahead: dict[tuple[str, str], float] = {}

    def go_on(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.ahead = {each: max(0.0, ahead - seconds) for each, ahead in self.ahead.items()}

    def count(self, name: str, key: str) -> int:
        """How many attempts run under a permit."""
        return sum(
            (need.name, need.key) == (name, key)
            for job in self.jobs.values()
            if job.state is State.RUNNING
            for need in job.needs
        )

    def free(self, need: Need) -> int:
        """How many jobs may start under a permit."""
        limit = self.limits.get(need.name)
        if limit is None or any(limit.held.get(each, 0.0) > self.now for each in ("", need.key)):
            return 0
        cap = limit.keys.get(need.key, limit.running)
        free = 1_000 if cap is None else max(0, cap - self.count(need.name, need.key))
        if limit.spacing is None:
            return free
        ahead = self.ahead.get((need.name, need.key), 0.0)
        return min(free, floor((limit.burst * limit.spacing - ahead) / limit.spacing + 1e-6))

    def may_start(self, job: LimitedJob) -> bool:
        """Whether a queued job lacks nothing."""
        waits = job.state is State.QUEUED and job.due
        return waits and all(self.free(need) > 0 for need in job.needs)

    def start(self, job_ids: Iterable[int]) -> None:
        """Note what a reply has brought. L2: each permit had room for it."""
        for job_id in job_ids:
            job = self.jobs[job_id]
            assert self.may_start(job), f"job {job_id} has begun without room"
            job.state = State.RUNNING
            for need in job.needs:
                spacing = self.limits[need.name].spacing or 0.0
                each = need.name, need.key
                self.ahead[each] = self.ahead.get(each, 0.0) + spacing

    def give_back_rate(self, job_id: int) -> None:
        """Note that an attempt never began."""
        for need in self.jobs[job_id].needs:
            each = need.name, need.key
            spacing = self.limits[need.name].spacing or 0.0
            self.ahead[each] = max(0.0, self.ahead.get(each, 0.0) - spacing)

    def startable(self) -> list[int]:
        """The jobs that may start (L3: after enough claims there are none)."""
        return [job_id for job_id, job in self.jobs.items() if self.may_start(job)]
