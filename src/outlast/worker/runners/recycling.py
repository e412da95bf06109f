"""Decides when a runner is replaced: after a number of attempts, above an amount of memory, or if a
task has changed its process for good.

Above a limit a runner *retires*: it takes no more attempts, the spare steps in, and it leaves once
it is empty. Only runners that take work count towards the pool's size, so one with a plain function
retires after that has ended: else more would run at a time than the pool has runners, just when
memory is short. Far above the memory limit it is killed. The next attempt is not blamed for memory
that an earlier one leaves behind: the runner is weighed as each attempt ends, and attempts that
have left it since it was last light count as neighbours of the attempts that are killed with it.

When the kernel kills a process for want of memory, its parent only sees SIGKILL, and the cgroup's
count of such kills has risen: evidence, not proof, since other processes may share the cgroup.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from outlast.base.clock import Clock
from outlast.base.text import size
from outlast.events import emit
from outlast.model.crash import MemoryEvidence
from outlast.worker.runners.process import GROUP_EMPTY_SECONDS, QUIT_SECONDS, Death, RunnerProcess

# why a runner was recycled or killed
MAX_RSS, MAX_JOBS, SPOILED = "max_rss", "max_jobs_per_runner", "spoiled"
LOOK_SECONDS = 1.0
FAR_ABOVE = 1.5  # times max_rss: it is killed
RETIRING_PER_RUNNER = 2  # above that many retiring ones, due runners continue to take work
WINDOW_SECONDS = GROUP_EMPTY_SECONDS + 5.0  # between the kernel's kill and the report of the death
_ENDLESS = 2**62  # version 1 writes "no limit" as a number near 2**63
_SESSION, _RSS = 3, 21  # fields of /proc/PID/stat, counted after the name
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Files(msgspec.Struct, frozen=True):
    kills: tuple[str, ...]  # the first that exists; ".local" leaves out the groups below
    limit: str
    peak: str


_V1 = _Files(("memory.oom_control",), "memory.limit_in_bytes", "memory.max_usage_in_bytes")
_V2 = _Files(("memory.events.local", "memory.events"), "memory.max", "memory.peak")


class Cgroup:
    """A memory cgroup, of version 1 or 2. Values that cannot be read are None."""

    def __init__(self, folder: Path, mount: Path, files: _Files) -> None:
        self.folder = folder
        self._mount = mount
        self._files = files

    def kills(self) -> int | None:
        """Return how many processes of this cgroup the kernel has killed for want of memory."""
        for name in self._files.kills:
            words = dict(line.split()[:2] for line in _lines(self.folder / name) if " " in line)
            if "oom_kill" in words:
                return _number(words["oom_kill"])
        return None

    def limit(self) -> int | None:
        """Return the tightest limit in bytes, of this cgroup or of one above it."""
        folders = [self.folder, *self.folder.parents]
        above = folders[: folders.index(self._mount) + 1] if self._mount in folders else folders[:1]
        limits = [_first(folder / self._files.limit) for folder in above]
        return min((each for each in limits if each is not None and each < _ENDLESS), default=None)

    def peak(self) -> int | None:
        """Return the peak of bytes that the cgroup has used."""
        return _first(self.folder / self._files.peak)


def find_cgroup(proc: Path = Path("/proc")) -> Cgroup | None:
    """Return the memory cgroup of this process, or None if no cgroup counts kills."""
    paths = {}
    for line in _lines(proc / "self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
        if number == "0":
            paths["cgroup2"] = path
    found = [
        Cgroup(_below(mount, root, paths[name]), mount, _V1 if name == "memory" else _V2)
        for name, root, mount in _mounts(proc)
        if name in paths
    ]
    found.sort(key=lambda each: each._files is not _V1)  # noqa: SLF001
    return next((each for each in found if each.kills() is not None), None)


def _mounts(proc: Path) -> Iterator[tuple[str, str, Path]]:
    for line in _lines(proc / "self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, rest = after.partition(" ")
        if kind == "cgroup2":
            name = kind
        elif kind == "cgroup" and "memory" in rest.replace(",", " ").split():
            name = "memory"
        else:
            continue
        root, mount = before.split(" ")[3:5]
        yield name, root, Path(mount.encode().decode("unicode_escape"))  # a blank is \040


def _below(mount: Path, root: str, path: str) -> Path:
    """Return the directory of a cgroup; in a container with other names, the mount itself."""
    rest = os.path.relpath(path, root)
    return mount if rest.startswith("..") or ".." in path else mount / rest


class OomWatch:
    """Compares deaths by SIGKILL with the cgroup's count, in which one kill explains one death. The
    rise is counted from the last check that is older than the report of a death may take."""

    def __init__(self, cgroup: Cgroup | None, clock: Clock) -> None:
        self.cgroup = cgroup
        self._clock = clock
        self._looks: deque[tuple[float, int]] = deque()
        self.look()

    def look(self) -> None:
        """Note the count; call it about once a second."""
        kills = None if self.cgroup is None else self.cgroup.kills()
        if kills is None:
            return
        now = self._clock.boot()
        self._looks.append((now, kills))
        while len(self._looks) > 1 and self._looks[1][0] <= now - WINDOW_SECONDS:
            self._looks.popleft()

    def explain(self, death: Death) -> MemoryEvidence | None:
        """Return the evidence that the kernel killed this runner for want of memory, if any."""
        if self.cgroup is None or not self._looks or death.signal != "SIGKILL":
            return None
        before, after = self._looks[0][1], self.cgroup.kills()
        if after is None or after <= before:
            return None
        self._looks = deque((at, kills + 1) for at, kills in self._looks)
        return MemoryEvidence(
            source="cgroup",
            limit_bytes=self.cgroup.limit(),
            peak_bytes=self.cgroup.peak(),
            oom_kills_before=before,
            oom_kills_after=after,
            cgroup=str(self.cgroup.folder),
        )


def read_resident(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return the resident bytes of each session. Pages that a parent shares with its forked
    children are counted for each of them."""
    sizes: dict[int, int] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            session, size = _stat(proc / name)
            sizes[session] = sizes.get(session, 0) + size
    return sizes


def read_resident_of(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the resident bytes of one process; 0 once it is gone."""
    return _stat(proc / str(pid))[1]


def _stat(folder: Path) -> tuple[int, int]:
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[_SESSION]), int(fields[_RSS]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0, 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").split("\n")  # names may contain other separators
    except OSError:
        return []


def _first(path: Path) -> int | None:
    return next((_number(line) for line in _lines(path)), None)


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


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
        self.alone = max_jobs == 1  # then each attempt has a process, and waits for that
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
        leaving = any(runner.quit_at is not None for runner in runners)
        if self._oom.cgroup is None and not (self.has_limits or leaving):
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
        """Weigh a runner that these jobs have left, without its children, since that is one small
        file; return whether it is at a limit."""
        if self._max_rss is not None:
            runner.left_by.update(jobs)
            runner.rss = max(runner.rss, read_resident_of(runner.pid))
        return self._is_heavy(runner) or self._is_used_up(runner)

    def _is_heavy(self, runner: RunnerProcess) -> bool:
        return self._max_rss is not None and runner.rss > self._max_rss

    def _is_used_up(self, runner: RunnerProcess) -> bool:
        return self._max_jobs is not None and runner.taken >= self._max_jobs

    def retire(self, runners: Sequence[RunnerProcess]) -> bool:
        """Retire runners that are due; return whether any was. For its number of attempts, unless
        it is one, a runner retires only when a spare is ready. One that has run nothing is not due.
        """
        if not self.has_limits:
            return False
        retired = False
        for runner in runners:
            reason = self._reason(runner, runners)
            if reason is not None:
                retired = True
                self.retire_one(runner, reason)
        return retired

    def retire_one(self, runner: RunnerProcess, reason: str) -> None:
        """Retire this runner, whether or not another one can take its place yet."""
        runner.retiring = reason
        rss = runner.rss or read_resident_of(runner.pid)
        emit("runner_recycled", pid=runner.pid, reason=reason, rss=rss, attempts=runner.taken)
        self.dismiss(runner)

    def _reason(self, runner: RunnerProcess, runners: Sequence[RunnerProcess]) -> str | None:
        retiring = sum(each.retiring is not None for each in runners)
        if runner.retiring or not runner.taken:
            return None
        if runner.tokens and (
            self.alone or runner.exclusive or retiring >= RETIRING_PER_RUNNER * self._size
        ):
            return None  # an empty runner leaves at once
        if self._is_heavy(runner):
            return MAX_RSS
        if not self._is_used_up(runner):
            return None
        fit = sum(each.ready and each.retiring is None and not each.gone for each in runners)
        return MAX_JOBS if self.alone or fit > self._size else None

    def dismiss(self, runner: RunnerProcess) -> None:
        """Ask a retiring runner to leave once it is empty."""
        if runner.retiring is not None and not runner.tokens and runner.quit_at is None:
            runner.quit_at = self._clock.boot()
            runner.quit()

    def check_idle_memory(self, runner: RunnerProcess) -> str | None:
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
        "while the kernel killed processes in its cgroup for lack of memory"
        f" (kills {memory.oom_kills_before} to {memory.oom_kills_after},"
        f" limit: {_format_size(memory.limit_bytes)})"
    )
