"""Runs one runner for its worker: its start, messages, kill, and the evidence of its exit.

A death is reported only once the process was waited for, its session is empty, and all its frames
and output were read.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource  # noqa: F401  # else wait4() imports it, and fails without a free descriptor
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from outlast.base.clock import Clock
from outlast.base.text import signal_name
from outlast.errors import text_of
from outlast.events import emit
from outlast.model.crash import TEXT_MAX, MemoryEvidence
from outlast.runner.protocol import (
    STACKS_SIGNAL,
    TO_WORKER,
    Configure,
    FrameError,
    Hello,
    Quit,
    Recall,
    Run,
    RunnerSettings,
    ToRunner,
    ToWorker,
    Unpacker,
    pack,
)
from outlast.runner.tether import groups_of, kill_group
from outlast.worker.base import Declared
from outlast.worker.runners.output import OnOutput, Printed
from outlast.worker.runners.tags import NOTHING, split_by_tags

GROUP_EMPTY_SECONDS = 10.0
DRAIN_PIPES_SECONDS = 0.5
STACKS_SECONDS = 0.2
STACKS_BYTES_MAX = 4 * TEXT_MAX  # kept until it is known which stacks to show
FEW = 2  # attempts in a frame
QUIT_SECONDS = 3.0  # for a runner's lifespan to end
OOM_SCORE_ABOVE = 500  # above its worker's
OOM_SCORE_MAX = 1000
READ_BYTES = 1 << 16


class RunnerState:
    """The pool's notes on one runner. ``started_at`` is on the boot clock. ``taken``: attempts
    since the start. ``rss``: bytes of its process group, at the last check. ``left_by``: the jobs
    that have ended in it since its memory was last within ``max_rss``, and may have left some
    behind, or a lock."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.pid = 0
        self.ready = False
        self.tasks: dict[str, bool] = {}  # name -> whether it has a runner to itself
        self.lacks: dict[str, list[str]] = {}
        self.declared = Declared()
        self.release: str | None = None
        self.python: str | None = None
        self.tokens: set[int] = set()
        self._unended: dict[int, None] = {}  # running or waiting, in the order of assignment
        self.ended_at = float("-inf")  # when an attempt last ended in it
        # tokens about which the runner was asked whether they have begun
        self.recalling: set[int] = set()
        self.begun: set[int] = set()  # tokens that have begun, of those that were asked
        self.exclusive = False  # whether its attempt shares it with no other
        self.has_suspect = False  # whether that attempt is a suspect
        self.batches: dict[str, int] = {}  # name of a batch task -> the most attempts of a call
        self.batch: str | None = None  # the task of the call that gathers or runs in it
        self.gathering: set[int] = set()  # attempts whose call has not begun
        self.taken = 0
        self.rss = 0
        self.left_by: set[int] = set()
        self.retiring: str | None = None  # why it takes no more attempts
        self.quit_at: float | None = None
        self.kill_reason: str | None = None

    def note_ready(
        self, hello: Hello, tags: Collection[str], has: Mapping[str, int] = NOTHING
    ) -> None:
        """Note what the runner announced. Only tasks whose tags and units it has are served."""
        self.ready = True
        self.tasks, self.lacks = split_by_tags(hello.tasks, tags, has)
        self.batches = {info.name: info.batch for info in hello.tasks if info.batch}
        self.declared = Declared.of(hello)
        self.release, self.python = hello.release, hello.python

    @property
    def takes_attempts(self) -> bool:
        """Whether it is ready and not leaving."""
        return self.ready and self.retiring is None and self.kill_reason is None

    def take(self, tokens: Collection[int]) -> None:
        """Note that these attempts are assigned to it, in their order."""
        self.tokens.update(tokens)
        self._unended.update(dict.fromkeys(tokens))

    def gather(self, token: int, task: str) -> None:
        """Note that this attempt gathers in it for a call of this batch task."""
        self.batch = task
        self.gathering.add(token)

    def places_to_gather(self, task: str) -> int:
        """Return how many more attempts the call that gathers here takes: 0 once it has begun."""
        if self.batch != task or len(self.gathering) < len(self.tokens):
            return 0
        return max(0, self.batches.get(task, 0) - len(self.tokens))

    def note_call(self, tokens: Collection[int]) -> list[int]:
        """Note that a call has begun with these attempts; return the attempts that came too
        late."""
        self.gathering.difference_update(tokens)
        return sorted(self.gathering)

    def find_stock(self, slots: int) -> list[int]:
        """Return the attempts that wait in the runner, unbegun, because its ``slots`` are taken."""
        if self.batch is not None:
            return []
        return list(islice(self._unended, slots, None))

    def note_ended(self, tokens: Collection[int], now: float) -> None:
        """Note that attempts have ended in it, including these; ``let_go`` follows later."""
        self.ended_at = now
        for token in tokens:
            self._unended.pop(token, None)

    def let_go(self, tokens: Collection[int]) -> None:
        """Note that these attempts are no longer in it."""
        self.tokens.difference_update(tokens)
        for token in tokens:
            self._unended.pop(token, None)
        self.recalling.difference_update(tokens)
        self.begun.difference_update(tokens)
        self.exclusive = self.exclusive and bool(self.tokens)
        self.has_suspect = self.has_suspect and bool(self.tokens)
        self.gathering.difference_update(tokens)
        if not self.tokens:
            self.batch = None

    def note_recalling(self, tokens: Collection[int]) -> list[int]:
        """Note that it is asked whether these have begun; return those not asked about before."""
        new = sorted(set(tokens) - self.recalling - self.begun)
        self.recalling.update(new)
        return new

    def note_recalled(self, tokens: Collection[int]) -> None:
        """Note that those of these attempts that are still in it have begun."""
        self.recalling.difference_update(tokens)
        self.begun |= self.tokens.intersection(tokens)

    def note_kill_reason(self, reason: str | None) -> None:
        """Note why it is killed; the first reason stays."""
        self.kill_reason = self.kill_reason or reason


class Death(msgspec.Struct, frozen=True):
    """How a runner's process ended, and the evidence that it left."""

    pid: int
    exit_code: int | None
    signal: str | None
    rss_peak_bytes: int
    cpu_seconds: float
    stacks: str
    output: list[str]
    complaint: str | None = None
    memory: MemoryEvidence | None = None


class RunnerOwner(NamedTuple):
    """What a runner calls. ``take_frames`` obeys frames in order, and raises for one that cannot be
    read or obeyed: the runner is then killed. ``take_death`` notes that the runner is gone,
    ``fail`` that this could not be reported: its attempts would be held forever."""

    take_frames: Callable[[RunnerProcess, Iterable[ToWorker]], None]
    take_death: Callable[[RunnerProcess, Death], None]
    fail: Callable[[BaseException], None]


class _Frames(asyncio.Protocol):
    """Passes on the data from the socket; ``ended`` is set at its end."""

    def __init__(self, sock: socket.socket, sink: Callable[[bytes], None]) -> None:
        self._socket = sock
        self._sink = sink
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._sink(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        """Read the data that is there now, and no more: a failed write has closed the transport, or
        time was over before the loop could read."""
        if not self.ended.is_set():
            self.ended.set()
            if size := _count_unread(self._socket.fileno()):
                self._sink(self._socket.recv(size))


def _count_unread(fd: int) -> int:
    """Return how many bytes of a socket or pipe can be read now."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


class RunnerProcess(RunnerState):
    """A child process that runs attempts. ``pid`` is also the id of its group and its session."""

    def __init__(
        self,
        settings: RunnerSettings,
        owner: RunnerOwner,
        *,
        clock: Clock,
        output: OnOutput,
        shared_fds: tuple[int, ...] = (),
    ) -> None:
        super().__init__(clock.boot())
        self._settings = settings
        self._owner = owner
        self._clock = clock
        self._on_output = output
        self._shared_fds = shared_fds
        self._unpacker = Unpacker(TO_WORKER)
        self._stacks = bytearray()
        self._asked_at = float("-inf")
        self._complaint: str | None = None
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []  # frames
        self._ending: asyncio.Task[None] | None = None
        self._printed = Printed(lambda: self.tokens, clock)

    async def start(self) -> None:
        """Spawn the process and listen to it. Raises OSError or RuntimeError, and leaves none."""
        ours, theirs = socket.socketpair()
        stacks_read, stacks_write = os.pipe()
        output_read, output_write = os.pipe()
        try:
            self._spawn(theirs.fileno(), stacks_write, output_write)
            self._raise_oom_score()
        except BaseException:
            ours.close()
            os.close(stacks_read)
            os.close(output_read)
            raise
        finally:
            theirs.close()
            os.close(stacks_write)
            os.close(output_write)
        ours.setblocking(False)
        self._stacks_pipe = Pipe(stacks_read, self._on_stacks)
        self._output = Pipe(output_read, self._on_lines)
        try:
            loop = asyncio.get_running_loop()
            self._frames = _Frames(ours, self._on_data)
            self._transport, _ = await loop.create_connection(lambda: self._frames, sock=ours)
            self._transport.write(pack(Configure(self._settings)))
            self._wait_on_thread()
        except BaseException:  # without a thread nothing would wait for this process
            kill_group(self.pid)
            self._process.wait()
            ours.close() if self._transport is None else self._transport.abort()
            self._stacks_pipe.close()
            self._output.close()
            raise

    @property
    def gone(self) -> bool:
        """Whether the process reads no more frames, even if its death is not reported yet."""
        hung_up = self._transport is None or self._transport.is_closing()
        return hung_up or self._ending is not None

    def send(self, frame: ToRunner) -> None:
        """Send a frame, with the loop's next iteration: waking the runner takes the processor from
        the worker, which first has to send its request to the store. A frame of only a few attempts
        goes at once: there were no more jobs, so no request follows. Frames to a dead runner are
        dropped. Raises FrameError for a frame that is too large."""
        if self._transport is not None and not self._transport.is_closing():
            self._unsent.append(pack(frame))
            if isinstance(frame, Run) and len(frame.attempts) <= FEW:
                self._flush()
            elif len(self._unsent) == 1:
                asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def recall(self, tokens: Collection[int]) -> None:
        """Recall, once, attempts whose code has not begun, even if the loop is blocked."""
        if new := self.note_recalling(tokens):
            self.send(Recall(new))

    def quit(self) -> None:
        """Let an idle runner leave its lifespan and exit."""
        self.send(Quit())

    def kill(self, reason: str | None = None) -> None:
        """Kill the runner and its process group, unless it has died; other groups of its session
        follow before its death is reported."""
        if self._ending is None:
            self.note_kill_reason(reason)
            kill_group(self.pid)

    def ask_stacks(self) -> None:
        """Request the stacks of all threads, which replace older ones: ``faulthandler`` obeys also
        while C code holds the GIL."""
        now = self._clock.boot()
        if self._ending is None and now - self._asked_at >= STACKS_SECONDS:
            self._asked_at = now
            self._stacks.clear()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, STACKS_SIGNAL)

    def stacks(self) -> str:
        """Return the stacks that have come, including stacks that the loop has not read yet."""
        self._stacks_pipe.drain()
        return self._stacks.decode(errors="replace")

    async def kill_with_stacks(self) -> None:
        """Ask for the stacks, then kill."""
        await self.ask_for_stacks()
        self.kill()

    async def ask_for_stacks(self) -> str:
        """Return the stacks of all threads; "" if the process is gone or stopped."""
        self.ask_stacks()
        await self._clock.sleep(STACKS_SECONDS)
        return self.stacks()

    def _spawn(self, sock: int, stacks: int, output: int) -> None:
        self._settings = msgspec.structs.replace(self._settings, stacks=stacks)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "outlast.runner.main", str(sock)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(sock, stacks, *self._shared_fds),
            start_new_session=True,
        )
        self.pid = self._process.pid

    def _raise_oom_score(self) -> None:
        """Let the kernel, when memory runs out, kill the runner before its worker. The worker sets
        the score: the kernel may kill again at once, even a runner that loads its interpreter."""
        score = Path(f"/proc/{self.pid}/oom_score_adj")
        with contextlib.suppress(OSError, ValueError):  # not Linux, or the process has died already
            inherited = int(score.read_text())
            score.write_text(str(min(OOM_SCORE_MAX, inherited + OOM_SCORE_ABOVE)))

    def _on_data(self, data: bytes) -> None:
        self._output.drain()  # read output that was written before a frame before the frame
        if self._complaint is not None:
            return
        try:
            self._owner.take_frames(self, self._unpacker.feed(data))
        except Exception as error:  # a frame that cannot be read or obeyed
            self._complaint = text_of(error) if isinstance(error, FrameError) else repr(error)
            emit("frame_rejected", pid=self.pid, error=self._complaint)
            self.kill("bad_frame")

    def _on_stacks(self, data: bytes) -> None:
        self._stacks += data
        del self._stacks[:-STACKS_BYTES_MAX]

    def _on_lines(self, data: bytes) -> None:
        for token, text in self._printed.take(data):
            self._on_output(self.pid, text, token)

    def lines_of(self, token: int, since: float) -> list[str]:
        """Return the last lines of an attempt that began at ``since``."""
        return self._printed.lines_of(token, since)

    def forget(self, tokens: Collection[int]) -> None:
        """Forget the output of these attempts, which have ended."""
        for token in self._printed.forget(tokens):
            self._on_output(self.pid, b"\n", token)  # other writers begin on a new line

    def _wait_on_thread(self) -> None:
        loop = asyncio.get_running_loop()

        def wait() -> None:
            status, usage, code = None, None, 0
            try:
                _, status, usage = os.wait4(self.pid, 0)
                code = os.waitstatus_to_exitcode(status)
            except Exception as error:  # other code has waited for it, say: a death all the same
                emit("runner_not_waited_for", pid=self.pid, error=text_of(error))
            self._process.returncode = code  # else Popen would wait for it, too
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                loop.call_soon_threadsafe(self._note_exit, status, usage)

        threading.Thread(target=wait, name=f"outlast-wait-{self.pid}", daemon=True).start()

    def _note_exit(self, status: int | None, usage: Any) -> None:
        self._ending = asyncio.create_task(self._wind_up(status, usage))
        self._ending.add_done_callback(self._note_wound_up)

    def _note_wound_up(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.fail(error)  # its attempts would be held forever: the worker must end

    async def _wind_up(self, status: int | None, usage: Any) -> None:
        await self._empty_session()
        try:
            async with asyncio.timeout(DRAIN_PIPES_SECONDS):
                for each in (self._frames, self._stacks_pipe, self._output):
                    await each.ended.wait()
        except TimeoutError:  # an escaped child holds a pipe open: its output does not matter
            self._frames.end()
        death = self._death(status, usage)
        if self._transport is not None:
            self._transport.close()
        self._stacks_pipe.close()
        self._output.close()
        self._owner.take_death(self, death)

    async def _empty_session(self) -> None:
        deadline = self._clock.boot() + GROUP_EMPTY_SECONDS
        while (groups := self._groups()) is None or groups:
            if self._clock.boot() >= deadline:  # the killed processes run no more user code
                emit("runner_unkillable", pid=self.pid, attempts=len(self.tokens))
                return
            for pgid in groups or ():
                kill_group(pgid)
            await self._clock.sleep(0.01)

    def _groups(self) -> set[int] | None:
        """Return the groups of its session that have a process left; None if that is unreadable."""
        try:
            return groups_of({self.pid})
        except OSError:
            return None

    def _death(self, status: int | None, usage: Any) -> Death:
        for token in self._printed.unfinished():
            self._on_output(self.pid, b"\n", token)
        code = None if status is None else os.waitstatus_to_exitcode(status)
        unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss
        return Death(
            pid=self.pid,
            exit_code=code if code is None or code >= 0 else None,
            signal=signal_name(-code) if code is not None and code < 0 else None,
            rss_peak_bytes=0 if usage is None else usage.ru_maxrss * unit,
            cpu_seconds=0 if usage is None else round(usage.ru_utime + usage.ru_stime, 3),
            stacks=self.stacks(),
            output=self._printed.all.lines(),
            complaint=self._complaint,
        )


class Pipe:
    """Passes the data of a pipe to ``sink``; ``ended`` is set at its end. Owns ``fd``: uvloop's
    transport closes a descriptor once too often, when it may belong to another file."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read, READ_BYTES)

    def drain(self) -> None:
        """Read only the data that is there now: an endless writer must not block the loop."""
        if self._fd >= 0 and (size := _count_unread(self._fd)):
            self._read(size)

    def _read(self, size: int) -> None:
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._sink(data)
        else:
            self.close()

    def close(self) -> None:
        """Close the pipe. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)
            self.ended.set()
