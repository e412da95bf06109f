"""The kernel's memory counters, read from small trees of files in its format.

The real counters of version 1 are in tests/crash/test_memory.py; those of version 2 are here only.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlast.worker.runners import recycling
from outlast.worker.runners.recycling import (
    WINDOW_SECONDS,
    Cgroup,
    OomWatch,
    find_cgroup,
    read_resident,
)
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import death

MIB = 1024 * 1024
KILLED = death(signal="SIGKILL")


class Machine:
    """A ``/proc`` and the mounts of cgroups, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.mount = folder / "sys fs" / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.mount.mkdir(parents=True)

    def says(self, cgroup: str, *mounts: str) -> None:
        place = str(self.mount).replace(" ", "\\040")
        lines = [f"{n} 1 0:{n} " + mount.format(place) for n, mount in enumerate(mounts)]
        (self.proc / "self/cgroup").write_text(cgroup)
        (self.proc / "self/mountinfo").write_text("\n".join(lines) + "\n")

    def group(self, path: str, **files: str) -> Path:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_", ".", 1).replace("__", ".")).write_text(text)
        return folder


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


V1 = "/ {} rw,relatime - cgroup cgroup rw,memory"
V2 = "/ {} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"


def in_version_2(machine: Machine, kills: int = 0) -> Cgroup:
    machine.says("0::/pod/worker\n", V2)
    machine.group("pod", memory_max=f"{300 * MIB}\n")
    machine.group(
        "pod/worker",
        memory_events=f"low 0\nhigh 0\nmax 9\noom 3\noom_kill {kills + 5}\n",
        memory_events__local=f"low 0\nmax 9\noom 3\noom_kill {kills}\noom_group_kill 0\n",
        memory_max="max\n",
        memory_peak=f"{123 * MIB}\n",
    )
    found = find_cgroup(machine.proc)
    assert found is not None
    return found


# ------------------------------------------------------------------------------- location


def test_version_2_counts_its_own_kills_and_has_the_tightest_limit_above(machine):
    found = in_version_2(machine, kills=2)
    assert found.folder == machine.mount / "pod/worker"
    assert (found.kills(), found.limit(), found.peak()) == (2, 300 * MIB, 123 * MIB)


def test_older_kernels_count_the_groups_below_too(machine):
    found = in_version_2(machine, kills=2)
    (found.folder / "memory.events.local").unlink()
    assert found.kills() == 7


def test_version_1_has_other_names(machine):
    machine.says("5:cpu:/x\n4:memory:/box\n0::/\n", V1, V2)
    machine.group("", memory_limit_in_bytes="9223372036854771712\n")
    machine.group(
        "box",
        memory_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        memory_limit_in_bytes=f"{200 * MIB}\n",
        memory_max_usage_in_bytes=f"{199 * MIB}\n",
    )
    found = find_cgroup(machine.proc)
    assert found is not None
    assert (found.kills(), found.limit(), found.peak()) == (3, 200 * MIB, 199 * MIB)


def test_no_limit_is_none(machine):
    found = in_version_2(machine)
    (machine.mount / "pod/memory.max").write_text("max\n")
    assert found.limit() is None


def test_a_container_that_sees_only_its_own_part_of_the_tree(machine):
    machine.says("4:memory:/docker/abc\n", V1.replace("/ {}", "/docker/abc {}"))
    no_limit = "9223372036854771712\n"
    machine.group("", memory_oom_control="oom_kill 1\n", memory_limit_in_bytes=no_limit)
    found = find_cgroup(machine.proc)
    assert found is not None
    assert found.folder == machine.mount
    assert (found.kills(), found.limit()) == (1, None)


def test_a_container_whose_names_are_not_those_of_the_mount(machine):
    machine.says("0::/../../init\n", V2)
    machine.group("", memory_events="oom_kill 1\n")
    found = find_cgroup(machine.proc)
    assert found is not None
    assert found.folder == machine.mount


@pytest.mark.parametrize(
    ("cgroup", "mounts"),
    [("", ()), ("0::/\n", (V2,)), ("4:memory:/elsewhere\n", (V1,)), ("1:cpu:/\n", (V1,))],
    ids=["nothing", "no counters", "no folder", "no controller"],
)
def test_without_counters_there_is_no_cgroup(machine, cgroup, mounts):
    machine.says(cgroup, *mounts)
    assert find_cgroup(machine.proc) is None


def test_without_proc_there_is_no_cgroup(tmp_path):
    assert find_cgroup(tmp_path) is None


# ---------------------------------------------------------------------------- explanations


class Watched:
    """A watch over a cgroup of version 2, whose count the test sets."""

    def __init__(self, machine: Machine) -> None:
        self.clock = ManualClock(boot=0.0)
        self.cgroup = in_version_2(machine)
        self.watch = OomWatch(self.cgroup, self.clock)

    def count(self, kills: int) -> None:
        (self.cgroup.folder / "memory.events.local").write_text(f"oom_kill {kills}\n")

    def pass_(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.watch.look()


@pytest.fixture
def watched(machine) -> Watched:
    return Watched(machine)


def test_a_kill_while_the_count_rose_is_explained_with_the_figures(watched):
    watched.count(1)
    seen = watched.watch.explain(KILLED)
    assert seen is not None
    assert (seen.source, seen.oom_kills_before, seen.oom_kills_after) == ("cgroup", 0, 1)
    assert (seen.limit_bytes, seen.peak_bytes) == (300 * MIB, 123 * MIB)
    assert seen.cgroup == str(watched.cgroup.folder)


@pytest.mark.parametrize("how", [{"signal": "SIGSEGV"}, {"exit_code": 1}], ids=str)
def test_what_was_not_killed_is_not_explained(watched, how):
    watched.count(1)
    assert watched.watch.explain(death(**how)) is None


def test_one_kill_by_the_kernel_explains_one_death(watched):
    watched.count(2)
    assert watched.watch.explain(KILLED) is not None
    assert watched.watch.explain(KILLED) is not None
    assert watched.watch.explain(KILLED) is None


@pytest.mark.parametrize(
    ("kills", "seconds", "explained"),
    [(0, 0, False), (1, WINDOW_SECONDS - 1, True), (1, WINDOW_SECONDS + 2, False)],
    ids=["none", "a death reported late", "an older kill of another process"],
)
def test_a_kill_within_the_window_explains_a_death(watched, kills, seconds, explained):
    watched.count(kills)
    watched.pass_(seconds)
    assert (watched.watch.explain(KILLED) is not None) is explained


def test_a_counter_that_has_gone_explains_nothing(watched):
    watched.count(1)
    for name in ("memory.events.local", "memory.events"):
        (watched.cgroup.folder / name).unlink()
    watched.watch.look()
    assert watched.watch.explain(KILLED) is None


def test_without_a_cgroup_nothing_is_explained():
    assert OomWatch(None, ManualClock()).explain(KILLED) is None


# ----------------------------------------------------------------------------- resident memory


def stat(folder: Path, pid: int, session: int, pages: int) -> None:
    (folder / str(pid)).mkdir()
    fields = ["S", "1", "1", str(session), *["0"] * 17, str(pages), *["0"] * 20]
    (folder / str(pid) / "stat").write_text(f"{pid} (a name) with ) in it) {' '.join(fields)}\n")


def test_resident_memory_is_summed_by_session(tmp_path):
    page = os.sysconf("SC_PAGE_SIZE")
    stat(tmp_path, 10, 10, 3)
    stat(tmp_path, 11, 10, 4)
    stat(tmp_path, 12, 12, 5)
    (tmp_path / "meminfo").touch()
    (tmp_path / "13").mkdir()  # gone between the list and the look
    (tmp_path / "14").mkdir()
    (tmp_path / "14" / "stat").write_text("14 (half")
    sizes = read_resident(tmp_path)
    assert (sizes[10], sizes[12]) == (7 * page, 5 * page)
    assert recycling.read_resident_of(12, tmp_path) == 5 * page
    assert recycling.read_resident_of(13, tmp_path) == 0


def test_the_memory_of_this_process_matches_another_file_of_the_kernel():
    """Compared with VmRSS, within a wide margin, since memory changes meanwhile."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc here")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    told = int(lines["VmRSS"].split()[0]) * 1024
    assert told / 2 < recycling.read_resident_of(os.getpid()) < told * 2
    assert read_resident()[os.getsid(0)] > told / 2


def test_a_mount_with_an_odd_name_hides_no_cgroup(machine) -> None:
    cgroup = in_version_2(machine, kills=3)
    assert cgroup.kills() == 3
    mounts = machine.proc / "self/mountinfo"
    odd = (
        "29 1 0:9 / /home/\x1e\u2028\u00a0x rw - fuse.x x rw\n".encode() + b"28 1 0:8 / /\xff rw\n"
    )
    mounts.write_bytes(odd + mounts.read_bytes())
    groups = machine.proc / "self/cgroup"
    groups.write_text(f"1:name=a\x1eb:/x\u2028\n{groups.read_text()}")
    found = find_cgroup(machine.proc)
    assert found is not None
    assert found.kills() == 3
