"""A runner as its worker sees it: its start, its frames, its output and its death."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from outlast.runner.protocol import Hello, Run, Stop, pack
from outlast.runner.tether import groups_of
from outlast.worker.runners import process as module
from outlast.worker.runners.process import STACKS_BYTES_MAX, RunnerProcess
from tests.unit.worker.runners import process_kit
from tests.unit.worker.runners.process_kit import SECONDS, Child, Stage
from tests.unit.worker.worker_kit import claimed, heard

stage = process_kit.stage


async def test_an_exit_is_reported_with_its_code_and_last_output(stage):
    await stage.start("print('last'); print('words', end=''); sys.stdout.flush(); sys.exit(3)")
    death = await stage.death()
    assert (death.exit_code, death.signal, death.complaint) == (3, None, None)
    assert death.output == ["last", "words"]
    assert death.rss_peak_bytes > 100_000
    assert bytes(stage.output) == b"last\nwords\n", "its last line is ended for it"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's choice is Linux's")
async def test_the_oom_killer_prefers_a_runner_to_its_worker_from_its_start(stage):
    child = await stage.start("sock.recv(1)")
    own, its = (
        int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (os.getpid(), child.pid)
    )
    assert its == min(1000, own + 500)


async def test_a_few_attempts_are_sent_before_the_loop_turns(stage, tmp_path):
    """Other frames wait for that turn, in which other callbacks run, too."""
    os.mkfifo(path := tmp_path / "heard")
    heard_at_once = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    child = await stage.start(f"sock.recv(1); open({str(path)!r}, 'w').write('yes')")
    child.send(Run(1, [claimed(7)]))
    readable, _, _ = select.select([heard_at_once], [], [], SECONDS)  # the loop stands still
    os.close(heard_at_once)
    assert readable


async def test_a_signal_is_reported_by_name_with_the_stacks(stage):
    await stage.start("os.write(stacks, b'where it was'); os.kill(os.getpid(), signal.SIGSEGV)")
    death = await stage.death()
    assert (death.exit_code, death.signal, death.stacks) == (None, "SIGSEGV", "where it was")


async def test_a_real_time_signal_has_a_name_too(stage):
    await stage.start("os.kill(os.getpid(), signal.SIGRTMIN + 3)")
    assert (await stage.death()).signal == f"signal {signal.SIGRTMIN + 3}"


async def test_frames_sent_before_the_death_are_handled_before_it(stage):
    await stage.start("frame(HELLO); os._exit(1)")
    await stage.death()
    assert stage.frames == [Hello([], None, "3")]


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
@pytest.mark.parametrize("hinder", ["a failed write", "a loop that stands still"])
def test_the_last_frames_are_read_though_something_hinders_it(hinder, loops, monkeypatch):
    """Or a job that has ended would run again, and an innocent one would be charged."""
    make_loop = pytest.importorskip(loops).new_event_loop
    monkeypatch.setattr(module, "DRAIN_PIPES_SECONDS", 0.0)

    async def die() -> list[Any]:
        stage = Stage()
        child = await stage.start("frame(HELLO); os._exit(1)")
        stand_still_until_dead(child.pid)
        if hinder == "a failed write":
            child.quit()
            child._flush()
        else:
            assert child._transport is not None
            child._transport.pause_reading()
        await stage.death()
        return stage.frames

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(die()) == [Hello([], None, "3")]


def stand_still_until_dead(pid: int) -> None:
    """Block the loop."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_output_in_the_pipes_is_read_before_the_death_is_reported(stage, monkeypatch):
    """Here a child that left the group writes once its parent is gone."""
    monkeypatch.setattr(module, "DRAIN_PIPES_SECONDS", SECONDS)
    await stage.start(
        "late = 'import os, sys\\nwhile os.getppid() == int(sys.argv[1]): pass\\nprint(\"late\")'\n"
        "subprocess.Popen([sys.executable, '-S', '-c', late, str(os.getpid())],"
        " start_new_session=True)\n"
        "os._exit(0)"
    )
    assert (await stage.death()).output == ["late"]


@pytest.mark.parametrize("group", ["", ", process_group=0"], ids=["its group", "another"])
async def test_a_death_is_reported_only_when_the_session_is_empty(stage, group):
    await stage.start(
        "subprocess.Popen([sys.executable, '-S', '-c', 'import signal; signal.pause()']"
        f"{group}); os._exit(1)"
    )
    assert (await stage.death()).exit_code == 1
    assert stage.at_death == [True]


async def test_without_a_thread_no_process_of_the_runner_is_left(monkeypatch):
    """At a limit of processes each try would leave one more process that is not tracked."""
    before = os.listdir("/proc/self/fd")
    stage, spawned = Stage(), []
    spawn = Child._spawn

    def note(child: Child, *fds: int) -> None:
        spawn(child, *fds)
        spawned.append(child)

    def refuses(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Child, "_spawn", note)
    monkeypatch.setattr(RunnerProcess, "_wait_on_thread", refuses)
    with pytest.raises(RuntimeError):
        await stage.start("signal.pause()")
    (child,) = spawned
    assert child._process.returncode == -signal.SIGKILL
    await asyncio.sleep(0)  # the transport closes its socket with the loop's next turn
    assert len(os.listdir("/proc/self/fd")) == len(before)


async def test_a_death_that_cannot_be_inspected_yet_is_reported_later(stage, monkeypatch):
    looks = iter([OSError(errno.EMFILE, "Too many open files")] * 3)

    def groups(sids: Any) -> set[int]:
        if (error := next(looks, None)) is not None:
            raise error
        return groups_of(sids)

    monkeypatch.setattr(module, "groups_of", groups)
    await stage.start("os._exit(7)")
    assert (await stage.death()).exit_code == 7
    assert next(looks, None) is None
    assert stage.at_death == [True]


async def test_of_stacks_without_end_the_last_are_kept(stage):
    await stage.start(f"os.write(stacks, b'x' * {2 * STACKS_BYTES_MAX} + b'end'); os._exit(1)")
    assert (await stage.death()).stacks == "x" * (STACKS_BYTES_MAX - 3) + "end"


async def test_output_without_end_is_bounded_and_odd_bytes_can_be_shown(stage):
    await stage.start(
        "sys.stdout.buffer.write(b'x' * 300_000 + b'\\n' + b'line\\n' * 200 + bytes([0, 255]))"
    )
    death = await stage.death()
    assert len(death.output) == 50
    assert death.output[-2:] == ["line", "\x00\ufffd"]


async def test_an_escaped_child_that_holds_the_pipes_does_not_delay_the_report(stage):
    await stage.start(
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import signal; signal.pause()'],"
        " start_new_session=True); print(child.pid, flush=True); os._exit(0)"
    )
    death = await stage.death()
    os.kill(int(death.output[0]), signal.SIGKILL)
    assert death.exit_code == 0


async def test_frames_to_a_dead_runner_are_dropped(stage):
    child = await stage.start("os._exit(0)")
    await stage.death()
    child.send(Stop(1, "cancel"))
    child.kill("late")
    await child.kill_with_stacks()


async def test_what_was_written_before_a_frame_is_read_before_it(stage):
    """Otherwise an attempt's last lines come after its end, and count as the next one's."""
    child = await stage.start(
        "data = b''\n"
        "while b'Stop' not in data: data += sock.recv(9999)\n"
        "os.write(1, b'before\\n'); signal.pause()"
    )
    child.send(Stop(1, "drain"))
    child._flush()
    assert select.select([child._output._fd], [], [], SECONDS)[0], "before the loop turns"
    assert not stage.output
    child._on_data(pack(Hello([], None, "3")))
    assert bytes(stage.output) == b"before\n"


class Taker:
    """Takes each number of a descriptor as soon as it is free, as another thread might."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._close, self._fdopen = os.close, os.fdopen
        self._null = os.open(os.devnull, os.O_RDONLY)
        self.taken: set[int] = set()
        monkeypatch.setattr(os, "close", self.close)
        monkeypatch.setattr(os, "fdopen", self.fdopen)

    def take(self, fd: int) -> None:
        self.taken.add(os.dup2(self._null, fd))

    def close(self, fd: int) -> None:
        self._close(fd)
        if fd not in self.taken:
            self.take(fd)

    def fdopen(self, fd: int, *more: Any, **options: Any) -> Any:
        taker = self

        class File(io.FileIO):
            def close(self) -> None:
                if not (self.closed or is_open(self.fileno())):  # the loop has closed it already
                    taker.take(self.fileno())
                super().close()

        return File(fd, "rb") if options == {"buffering": 0} else self._fdopen(fd, *more, **options)

    def robbed(self) -> list[int]:
        """Give back all numbers; return those that other code has closed."""
        robbed = [fd for fd in self.taken if not is_open(fd)]
        for fd in self.taken.difference(robbed) | {self._null}:
            self._close(fd)
        return robbed


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_no_reused_descriptor_is_closed(kind, monkeypatch):
    loops = pytest.importorskip(kind)
    trouble: list[Any] = []

    async def bear_and_bury() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
        stage = Stage()
        await stage.start("pass")
        await stage.death()
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        taker = Taker(monkeypatch)
        runner.run(bear_and_bury())
        monkeypatch.undo()
    assert (taker.robbed(), trouble) == ([], [])


@pytest.mark.parametrize("error", [ChildProcessError(10, "No child processes"), MemoryError()])
async def test_a_runner_reaped_by_other_code_still_counts_as_dead(stage, monkeypatch, error):
    """Its attempts would be running forever, without a process."""

    def stolen(pid: int, options: int) -> Any:
        os.waitid(os.P_PID, pid, os.WEXITED)
        raise error

    monkeypatch.setattr("os.wait4", stolen)
    with heard() as names:
        await stage.start("print('last words')")
        death = await stage.death()
    assert (death.exit_code, death.signal, death.output) == (None, None, ["last words"])
    assert "runner_not_waited_for" in names
