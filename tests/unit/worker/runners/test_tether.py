"""The tether, with real small processes: no group outlives the pipe or the time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.base.clock import SYSTEM
from outlast.runner import tether as child
from outlast.runner.tether import groups_of, kill_group
from outlast.worker.runners import tether as parent
from outlast.worker.runners.tether import Tether
from tests.unit.worker.runners import tether_kit
from tests.unit.worker.runners.tether_kit import SECONDS, Group
from tests.unit.worker.worker_kit import heard

groups = tether_kit.groups


@pytest.fixture
def tether() -> Iterator[Tether]:
    made = Tether()
    made.start()
    yield made
    made.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_it_has_the_settings_of_the_loader_and_of_the_clock_and_no_secrets(monkeypatch):
    """With another clock than its worker's it would end all runners at once."""
    monkeypatch.setattr(os, "environ", {"LD_X": "1", "FAKETIME_X": "2", "OUTLAST_URL": "secret"})
    tether = Tether()
    tether.start()
    shown, deadline = b"", time.monotonic() + SECONDS
    try:
        while not shown and time.monotonic() < deadline:  # empty while it becomes its program
            shown = Path(f"/proc/{tether.pid}/environ").read_bytes()
    finally:
        tether.stop()
    assert sorted(shown.split(b"\0")) == [b"", b"FAKETIME_X=2", b"LD_X=1"]


# ------------------------------------------------------------------------------ three ends


def test_every_group_is_killed_when_the_pipe_ends(tether, groups):
    for group in groups:
        tether.add(group.pgid)
    tether.stop()
    for group in groups:
        group.wait_until_killed()
        assert groups_of({group.pgid}) == set()


def test_a_worker_with_many_open_files_has_a_tether():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] <= 1024:
        pytest.skip("this process may not open that many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1025, before[1]))
    reader, writer = os.pipe()
    try:
        high = fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, 1024)
        os.write(writer, b"quit\n")
        os.close(writer)
        assert not child.hold(high), "it has heard that the worker leaves"
        os.close(high)
    finally:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_child_in_a_group_of_its_own_is_killed_with_its_session(tether, groups):
    """As a shell with job control makes one for each job."""
    shell = subprocess.Popen(
        ["bash", "-c", "set -m; sleep 1000 & echo $!; wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        assert groups_of({shell.pid}) == {shell.pid, sleeper}
        tether.add(shell.pid)
        tether.add(groups[0].pgid)
        tether.stop()
        assert shell.stdout.read() == b"", "the sleeper is gone as well"
    assert groups_of({shell.pid}) == set()
    groups[0].wait_until_killed()
    assert groups[1].lives()


def test_without_proc_a_live_group_is_still_seen(groups):
    """As in a chroot: a folder without processes does not show that they are gone."""
    unshare = [shutil.which("unshare") or "false", "--mount"]
    if subprocess.run([*unshare, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a mount namespace needs unshare(1) and the right to use it")
    pgid = groups[0].pgid
    look = f"import runpy; print(runpy.run_path({child.__file__!r})['groups_of']({{{pgid}}}))"
    hide = ["sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    command = [*unshare, *hide, sys.executable, "-S", "-c", look]
    assert subprocess.check_output(command, text=True) == f"{{{pgid}}}\n"


def test_every_group_is_killed_when_the_time_is_over_though_the_worker_lives(tether, groups):
    for group in groups:
        tether.add(group.pgid)
    tether.hold_until(SYSTEM.boot() + 0.3)
    for group in groups:
        group.wait_until_killed()


def test_a_group_added_after_the_time_is_killed_at_once(tether, groups):
    tether.hold_until(SYSTEM.boot() - 1.0)
    tether.add(groups[0].pgid)
    groups[0].wait_until_killed()
    assert groups[1].lives()


def test_a_renewal_that_has_come_is_read_before_the_time_is_judged(monkeypatch):
    """The tether alone was stopped, or starved, for longer than the time."""
    read, write = os.pipe()
    lines = iter([(0.0, b"add 1\nuntil 5\n"), (10.0, b"until 15\n")])
    kills: list[set[int]] = []

    def kill(sessions: set[int]) -> bool:
        kills.append(sessions)
        return True

    def look_at_the_clock(_: int) -> float:
        now, line = next(lines, (10.0, b""))
        os.write(write, line) if line else os.close(write)
        return now

    monkeypatch.setattr(time, "clock_gettime", look_at_the_clock)
    monkeypatch.setattr(child, "_end", kill)
    assert child.hold(read)
    os.close(read)
    assert len(kills) == 1, "by the end of the pipe"


def test_a_renewal_postpones_the_kill(tether, groups):
    until = SYSTEM.boot() + 0.3
    tether.add(groups[0].pgid)
    tether.hold_until(until)
    tether.hold_until(SYSTEM.boot() + 3600.0)
    other = Tether()  # shows that the time has passed
    other.start()
    other.add(groups[1].pgid)
    other.hold_until(until + 0.1)
    groups[1].wait_until_killed()
    other.stop()
    assert groups[0].lives()


def test_a_released_group_lives_on(tether, groups):
    for group in groups:
        tether.add(group.pgid)
    tether.drop(groups[0].pgid)
    tether.stop()
    groups[1].wait_until_killed()
    assert groups[0].lives()


# ------------------------------------------------------------------------ the tether itself


def test_the_tether_ignores_signals_of_terminals_and_service_managers(tether, groups):
    tether.add(groups[0].pgid)
    tether.hold_until(0.0)
    groups[0].wait_until_killed()  # so it is up and obeys
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(tether.pid, number)
    with heard() as names:
        tether.add(groups[1].pgid)
        groups[1].wait_until_killed()
    assert names == []


def test_a_tether_that_was_killed_is_started_again_and_knows_all_groups(tether, groups):
    tether.add(groups[0].pgid)
    first = tether.pid
    os.kill(first, signal.SIGKILL)
    tether._process.wait(SECONDS)
    with heard() as names:
        tether.add(groups[1].pgid)
    assert names == ["tether_restarted"]
    assert tether.pid not in {None, first}
    tether.stop()
    for group in groups:
        group.wait_until_killed()


def test_a_restarted_tether_knows_the_time(tether, groups):
    tether.add(groups[0].pgid)
    os.kill(tether.pid, signal.SIGKILL)
    tether._process.wait(SECONDS)
    tether.hold_until(SYSTEM.boot() + 0.2)
    groups[0].wait_until_killed()


def test_messages_before_the_start_and_after_the_stop_are_dropped():
    tether = Tether()
    tether.add(12345678)
    tether.drop(12345678)
    tether.hold_until(1.0)
    assert tether.pid is None
    tether.start()
    tether.stop()
    tether.stop()
    tether.hold_until(2.0)


def test_the_worker_s_shared_descriptor_is_held_until_the_groups_are_gone(groups):
    """The lock file is free only when nothing of the worker is left."""
    read, write = os.pipe()
    tether = Tether((write,))
    tether.start()
    tether.add(groups[0].pgid)
    os.close(write)
    os.kill(tether.pid, signal.SIGSTOP)  # type: ignore[arg-type]
    assert select.select([read], [], [], 0.0)[0] == []
    os.kill(tether.pid, signal.SIGCONT)  # type: ignore[arg-type]
    tether.stop()
    assert os.read(read, 1) == b""
    assert groups_of({groups[0].pgid}) == set()
    os.close(read)


# --------------------------------------------------------------------------- small functions


def test_a_group_of_zombies_is_empty(groups):
    group = groups[0]
    kill_group(group.pgid)
    os.waitid(os.P_PID, group.pgid, os.WEXITED | os.WNOWAIT)  # dead, and not waited for
    deadline = time.monotonic() + SECONDS
    while groups_of({group.pgid}):
        assert time.monotonic() < deadline
    os.killpg(group.pgid, 0)  # the zombie is still a member


def test_a_group_with_a_living_grandchild_is_not_empty(groups):
    group = groups[0]
    os.kill(group.pgid, signal.SIGKILL)
    group.process.wait(SECONDS)
    assert groups_of({group.pgid}) == {group.pgid}
    os.kill(group.grandchild, signal.SIGKILL)


def test_a_group_that_never_was_is_empty_and_can_be_killed():
    assert groups_of({2**22 + 1}) == set()
    kill_group(2**22 + 1)


@pytest.mark.parametrize("sees", [True, False], ids=["a process forks", "nothing can be seen"])
def test_a_group_is_killed_again_until_it_is_seen_to_be_empty(monkeypatch, sees):
    kills: list[int] = []

    def look(sids: object) -> set[int]:
        if len(kills) >= 4:
            return set()
        if sees:
            return {7}
        raise OSError(errno.ENFILE, "Too many open files in system")

    monkeypatch.setattr(child, "kill_group", kills.append)
    monkeypatch.setattr(child, "groups_of", look)
    named = {7}
    child._end(named)
    assert (kills, named) == ([7, 7, 7, 7], set())


def test_messages_may_be_split_anywhere(groups):
    read, write = os.pipe()
    for piece in (b"ad", f"d {groups[0].pgid}\nun".encode(), b"til inf\n", b"nonsense\n"):
        os.write(write, piece)
    os.close(write)
    child.hold(read)
    os.close(read)
    groups[0].wait_until_killed()


# ------------------------------------------------------------- when a system call of it fails


def fails(*_: object, **__: object) -> None:
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("what", ["pipe", "process"])
def test_a_failed_restart_of_the_tether_is_retried_with_the_next_message(
    tether, groups, monkeypatch, what
):
    """And closes no descriptor that has been reused."""
    tether.add(groups[0].pgid)
    os.kill(tether.pid, signal.SIGKILL)
    tether._process.wait(SECONDS)
    before = tether._pipe
    with heard() as names, monkeypatch.context() as patched:
        patched.setattr(*((os, "pipe") if what == "pipe" else (subprocess, "Popen")), fails)
        tether.hold_until(SYSTEM.boot() + 3600.0)
        other = os.open(os.devnull, os.O_RDONLY)
        if other != before:
            os.dup2(other, before)
        tether.hold_until(SYSTEM.boot() + 3600.0)
        os.fstat(before)
    with heard() as later:
        tether.hold_until(0.0)
    groups[0].wait_until_killed()
    assert (names, later) == (["tether_missing"] * 2, ["tether_restarted"])
    for fd in {other, before}:
        os.close(fd)


def test_a_stopped_tether_does_not_block_its_worker(tether, groups):
    tether.add(groups[0].pgid)
    os.kill(tether.pid, signal.SIGSTOP)
    with heard() as names:
        while not names:  # until the pipe is full
            tether.hold_until(SYSTEM.boot() + 3600.0)
    assert names == ["tether_restarted"]
    tether.hold_until(0.0)
    groups[0].wait_until_killed()


def test_the_end_of_a_worker_does_not_wait_for_a_stopped_tether(groups, monkeypatch):
    monkeypatch.setattr(parent, "STOP_SECONDS", 0.0)
    tether = Tether()
    tether.start()
    pid = tether.pid
    assert pid is not None
    tether.add(groups[0].pgid)
    os.kill(pid, signal.SIGSTOP)
    tether.stop()
    groups[0].wait_until_killed()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_out_of_descriptors_a_process_does_not_count_as_gone(groups, monkeypatch):
    def full(path: str, mode: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(child, "open", full, raising=False)
        with pytest.raises(OSError, match="Too many"):
            groups_of({groups[0].pgid})


def test_its_children_are_the_process_itself_and_the_runners_on_it(
    tether: Tether, groups: list[Group]
) -> None:
    """As process 1, the worker leaves these to the code that has started them."""
    first, second = groups
    tether.add(first.pgid)
    tether.add(second.pgid)
    tether.drop(second.pgid)
    assert tether.children() == {tether.pid, first.pgid}


# -------------------------------------------------------------------------------- the last will


# Notes its descriptors and its standard input in the file that its environment names.
PROGRAM = """
import json, os, signal, sys
listed = sorted(map(int, os.listdir("/proc/self/fd")))
fds = [fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")]
note = {
    "input": sys.stdin.read(),
    "fds": fds,
    "environment": dict(os.environ),
    "ignored": signal.getsignal(signal.SIGTERM) == signal.SIG_IGN,
    "limit": signal.alarm(0),
    "oom": open("/proc/self/oom_score_adj").read(),
}
with open(os.environ["NOTE"] + ".new", "w") as file:
    json.dump(note, file)
os.rename(os.environ["NOTE"] + ".new", os.environ["NOTE"])
"""
linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a will needs memfd_create")


class Will:
    """A will whose program notes what it was given."""

    def __init__(self, folder: Path) -> None:
        self.note = folder / "note"
        arguments = [sys.executable, "-S", "-c", PROGRAM]
        environment = {"NOTE": str(self.note), "ODD": "\udcff"}
        self.text = json.dumps({"arguments": arguments, "environment": environment, "url": "u"})
        self.fd = os.memfd_create("will")
        os.write(self.fd, self.text.encode())

    def tether(self, *shared: int) -> Tether:
        made = Tether(shared, self.fd)
        made.start()
        return made

    def noted(self) -> Any:
        return json.loads(self.note.read_text())


@pytest.fixture
def will(tmp_path: Path) -> Iterator[Will]:
    made = Will(tmp_path)
    yield made
    os.close(made.fd)


def break_off(tether: Tether) -> None:
    """Let the pipe end as when the worker is killed; wait for the process."""
    process = tether._process
    assert process is not None
    tether._close_pipe()
    assert process.wait(SECONDS) == 0


@linux
def test_the_will_of_a_worker_that_broke_off_is_carried_out_once_its_runners_are_gone(
    will: Will, groups: list[Group]
) -> None:
    read, write = os.pipe()
    tether = will.tether(write)
    os.close(write)
    tether.add(groups[0].pgid)
    break_off(tether)
    assert groups_of({groups[0].pgid}) == set()
    noted = will.noted()
    assert noted["input"] == will.text
    assert noted["environment"]["ODD"] == "\udcff"
    assert "LD_PRELOAD" not in noted["environment"]
    assert noted["fds"] == [0, 1, 2], "what it shares with its worker is let go of before"
    assert (noted["ignored"], noted["oom"].strip()) == (True, "1000")
    assert 0 < noted["limit"] <= child.WILL_SECONDS
    assert os.read(read, 1) == b""
    os.close(read)


@linux
def test_no_will_is_carried_out_of_a_worker_that_leaves(will: Will, groups: list[Group]) -> None:
    tether = will.tether()
    tether.add(groups[0].pgid)
    tether.stop()
    groups[0].wait_until_killed()
    assert not will.note.exists()


@linux
def test_no_will_is_carried_out_at_the_end_of_the_time(will: Will, groups: list[Group]) -> None:
    """As for a worker that is stopped or wedged: it lives."""
    tether = will.tether()
    tether.add(groups[0].pgid)
    tether.hold_until(0.0)
    groups[0].wait_until_killed()
    assert not will.note.exists()
    tether.stop()
    assert not will.note.exists()


@linux
def test_a_tether_that_is_started_again_carries_the_will_out(will: Will) -> None:
    tether = will.tether()
    assert tether._process is not None
    tether._process.kill()
    tether._process.wait(SECONDS)
    tether.hold_until(SYSTEM.boot() + 3600.0)
    break_off(tether)
    assert will.note.exists()


@pytest.mark.parametrize(
    ("said", "unseen", "certain"),
    [
        (b"add 7\n", 0, True),
        (b"", 0, True),
        (b"add 7\nquit\n", 0, False),
        (b"add 7\n", 1, False),
        (b"add 7\nuntil 0\n", 1, False),
    ],
    ids=["killed", "killed without runners", "leaves", "not seen to be empty", "nor before"],
)
def test_a_death_is_certain_once_all_sessions_were_seen_to_be_empty(
    monkeypatch: pytest.MonkeyPatch, said: bytes, unseen: int, certain: bool
) -> None:
    read, write = os.pipe()
    ends: list[set[int]] = []

    def end(sessions: set[int]) -> bool:
        if "until" in said.decode() and not ends:
            os.close(write)  # the worker is killed long after its time was up
        ends.append(set(sessions))
        sessions.clear()
        return len(ends) > unseen

    monkeypatch.setattr(child, "_end", end)
    os.write(write, said)
    if b"until" not in said:
        os.close(write)
    assert child.hold(read) is certain
    os.close(read)


def test_a_group_that_stays_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "kill_group", lambda pgid: None)
    monkeypatch.setattr(child, "groups_of", lambda sids: {7})
    monkeypatch.setattr(child, "EMPTY_SECONDS", 0.05)
    assert not child._end({7})
    monkeypatch.setattr(child, "groups_of", lambda sids: set())
    assert child._end({7})
