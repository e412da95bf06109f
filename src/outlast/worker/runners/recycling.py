"""Decides when a runner is replaced: after a number of attempts, or above an amount of memory.

Above a limit a runner *retires*: it takes no more attempts, the spare steps in, and it leaves once
it is empty. A long job does not delay its replacement, since only runners that take work count for
the pool's size. Far above the memory limit it is killed. The next attempt is not blamed for memory
that an earlier one leaves behind: the runner is weighed as each attempt ends, and attempts that
have left it since it was last light count as neighbours of those that are killed with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from outlast.base.clock import Clock
from outlast.base.text import size
from outlast.events import emit
from outlast.model.crash import MemoryEvidence
from outlast.worker.runners.memory import Cgroup, OomWatch, read_resident, read_resident_of
from outlast.worker.runners.process import QUIT_SECONDS, Death, RunnerProcess

MAX_RSS, MAX_JOBS = "max_rss", "max_jobs_per_runner"  # why a runner was recycled or killed
LOOK_SECONDS = 1.0
FAR_ABOVE = 1.5  # times max_rss: it is killed
RETIRING_PER_RUNNER = 2  # above that many retiring ones, due runners continue to take work


class Recycling:
    """Judges a pool's runners by their limits; ``size`` is the pool's."""

    def __init__(
        self,
        *,
        size: int,
        clock: Clock,
        max_rss: int | None = None,
        max_jobs: int | None = None,
        cgroup: Cgroup | None = None,
        read: Callable[[], dict[int, int]] = read_resident,
    ) -> None:
        self._size = size
        self._clock = clock
        self._max_rss = max_rss
        self._max_jobs = max_jobs
        self._oom = OomWatch(cgroup, clock)
        self._read = read
        self._next_look_at = clock.boot()

    @property
    def has_limits(self) -> bool:
        """Whether limits replace runners by what they have run: then each attempt counts."""
        return self._max_rss is not None or self._max_jobs is not None

    async def look(
        self, runners: Sequence[RunnerProcess], kill: Callable[[RunnerProcess, str], None]
    ) -> float | None:
        """Check counters and memory, once a second; return the seconds until the next check."""
        if self._oom.cgroup is None and self._max_rss is None and self._max_jobs is None:
            return None
        if self._clock.boot() >= self._next_look_at:
            self._next_look_at = self._clock.boot() + LOOK_SECONDS
            self._oom.look()
            await self._weigh(runners, kill)
            now = self._clock.boot()
            for runner in runners:
                self.dismiss(runner)
                if runner.quit_at is not None and now - runner.quit_at >= QUIT_SECONDS:
                    kill(runner, "recycled")
        return max(0.0, self._next_look_at - self._clock.boot())

    async def _weigh(
        self, runners: Sequence[RunnerProcess], kill: Callable[[RunnerProcess, str], None]
    ) -> None:
        if self._max_rss is None:
            return
        left = {runner: set(runner.left_by) for runner in runners}
        sizes = await asyncio.to_thread(self._read)  # hundreds of small files
        for runner in runners:
            runner.rss = sizes.get(runner.pid, 0)
            if runner.rss <= self._max_rss:
                runner.left_by.difference_update(left.get(runner, ()))
            if runner.tokens and runner.rss > self._max_rss * FAR_ABOVE:
                kill(runner, MAX_RSS)

    def note_left(self, runner: RunnerProcess, jobs: Collection[int]) -> bool:
        """Weigh a runner that these jobs have left; return whether it is above the limit. Only its
        own process is weighed, since that is one small file: its children wait for the next
        check."""
        if self._max_rss is None:
            return False
        runner.left_by.update(jobs)
        runner.rss = max(runner.rss, read_resident_of(runner.pid))
        return runner.rss > self._max_rss

    def retire(self, runners: Sequence[RunnerProcess]) -> bool:
        """Retire runners that are due for recycling; return whether any was due.

        A runner retires for its number of attempts only when a spare is ready, so that there is
        always a runner to take work. A runner that has run nothing yet is not due, however large it
        is.
        """
        if self._max_rss is None and self._max_jobs is None:
            return False
        retired = False
        for runner in runners:
            reason = self._reason(runner, runners)
            if reason is not None:
                retired, runner.retiring = True, reason
                rss = runner.rss or read_resident_of(runner.pid)
                emit(
                    "runner_recycled",
                    pid=runner.pid,
                    reason=reason,
                    rss=rss,
                    attempts=runner.taken,
                )
                self.dismiss(runner)
        return retired

    def _reason(self, runner: RunnerProcess, runners: Sequence[RunnerProcess]) -> str | None:
        retiring = sum(each.retiring is not None for each in runners)
        if runner.retiring or not runner.taken:
            return None
        if runner.tokens and retiring >= RETIRING_PER_RUNNER * self._size:
            return None  # an empty runner leaves at once
        if self._max_rss is not None and runner.rss > self._max_rss:
            return MAX_RSS
        if self._max_jobs is not None and runner.taken >= self._max_jobs:
            fit = sum(each.ready and each.retiring is None and not each.gone for each in runners)
            return MAX_JOBS if fit > self._size else None
        return None

    def dismiss(self, runner: RunnerProcess) -> None:
        """Ask a retiring runner to leave once it is empty."""
        if runner.retiring is not None and not runner.tokens and runner.quit_at is None:
            runner.quit_at = self._clock.boot()
            runner.quit()

    def complain_at_rest(self, runner: RunnerProcess) -> str | None:
        """Return a complaint if a runner is above the limit before it has run anything."""
        taken = 0 if self._max_rss is None else read_resident_of(runner.pid)
        if self._max_rss is None or taken <= self._max_rss:
            return None
        return (
            f"max_rss is {size(self._max_rss)}, but a runner with this application takes"
            f" {size(taken)} before its first attempt: set --max-rss well above that"
        )

    def explain(self, runner: RunnerProcess, death: Death) -> MemoryEvidence | None:
        """Return the evidence about memory for this death, if any."""
        if runner.kill_reason == MAX_RSS and self._max_rss is not None:
            return MemoryEvidence(source=MAX_RSS, rss_bytes=runner.rss, limit_bytes=self._max_rss)
        return self._oom.explain(death) if runner.kill_reason is None else None


def _format_size(count: int | None) -> str:
    return "unknown" if count is None else size(count)


def describe(memory: MemoryEvidence) -> str:
    """Return the evidence as half a sentence, to follow how a runner died."""
    if memory.source == MAX_RSS:
        limit = f"above {FAR_ABOVE:g} times its max_rss of {_format_size(memory.limit_bytes)}"
        return f"with {_format_size(memory.rss_bytes)}, {limit}"
    return (
        "while the kernel killed for want of memory in its cgroup"
        f" (kills {memory.oom_kills_before} to {memory.oom_kills_after},"
        f" limit: {_format_size(memory.limit_bytes)})"
    )
