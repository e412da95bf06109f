"""The last will, by real small processes: what a tether becomes once its worker has died."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.base.clock import SYSTEM
from outlast.runner import tether as child
from outlast.runner.tether import groups_of
from outlast.worker.runners.tether import Tether
from tests.unit.worker.runners import tether_kit
from tests.unit.worker.runners.tether_kit import SECONDS, Group

groups = tether_kit.groups

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
