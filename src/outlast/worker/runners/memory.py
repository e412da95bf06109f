"""Reads the kernel's data on memory: the counters of this worker's cgroup, and ``/proc``.

When the kernel kills a process for want of memory, its parent only sees SIGKILL. The cgroup's count
of such kills has then risen: evidence, not proof, since a worker, its runners and their children
share one cgroup, and a pod or service may have other processes in it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from outlast.base.clock import Clock
from outlast.model.crash import MemoryEvidence
from outlast.worker.runners.process import GROUP_EMPTY_SECONDS, Death

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
    """Yield the kind, the root and the local path of each mount of a memory hierarchy."""
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
    """Compares deaths by SIGKILL with the cgroup's count. One kill explains one death.

    A death is reported only when the runner's whole group is gone, so the rise is counted from the
    last check that is older than that may take.
    """

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
    """Return the resident bytes of each session; a process that ends meanwhile is left out.

    Pages that a parent shares with its forked children are counted for each of them.
    """
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
