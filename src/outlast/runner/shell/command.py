"""Runs one command in its own process group, reads its output, and leaves no process behind.

The command stays in the session of its runner, which its worker or the tether kills as a whole. Its
output goes to the runner's own stdout, and to a file if one was requested; its last lines are kept
in memory. One thread copies it and waits for each write: a slow reader slows the command down.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from outlast.base.clock import SYSTEM
from outlast.errors import text_of
from outlast.runner.printing import write_all
from outlast.runner.tail import Tail
from outlast.runner.tether import groups_of, kill_group

CHUNK_BYTES = 65_536
LAST_BYTES = 1 << 20  # read after the end of the command: more than a pipe holds by itself
EMPTY_SECONDS = 10.0  # until the processes that it left behind have to be gone
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # a shell's exit codes for a command that it cannot start


class CommandFailed(Exception):
    """A command that failed: why, how it ended, and the last lines it wrote."""

    def __init__(
        self,
        why: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        output: Sequence[str] = (),
    ) -> None:
        super().__init__(why)
        self.exit_code = exit_code
        self.signal = signal
        self.output = list(output)


class Carrier:
    """Reads the output of a command, on a thread."""

    def __init__(self, path: str | None) -> None:
        """``path``: the file to append all output to. CommandFailed if it cannot be opened."""
        self._file = None if path is None else _open_output(path)
        self._tail = Tail()
        self._read, self.write_end = os.pipe()
        self._closed, self._close = os.pipe()
        self._thread = threading.Thread(target=self._carry, name="outlast-output", daemon=True)
        self._thread.start()

    async def finish(self) -> list[str]:
        """Read the rest of the pipe, even if others hold it open; return the last lines."""
        os.close(self.write_end)
        os.close(self._close)
        await asyncio.to_thread(self._thread.join)
        return self._tail.lines()

    def _carry(self) -> None:
        try:
            self._until_the_end()
        finally:
            for fd in (self._read, self._closed, self._file):
                if fd is not None:
                    os.close(fd)

    def _until_the_end(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.register(self._closed, 0)  # poll reports its hang-up all the same
        left = LAST_BYTES
        while left > 0:
            ready = dict(poll.poll())
            if self._read not in ready:
                return  # closed, and the pipe is empty
            data = os.read(self._read, CHUNK_BYTES)
            if not data:
                return
            left -= len(data) if self._closed in ready else 0
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        self._tail.add(data)
        if self._file is not None:
            try:
                write_all(self._file, data)
            except OSError as error:
                os.close(self._file)
                self._file = None
                self._tail.add(b"\noutlast: the rest is not in the file: %a\n" % text_of(error))
        try:
            write_all(1, data)
        except OSError:  # the application has closed its stdout
            return


def _open_output(path: str) -> int:
    """Open a file for its owner alone, and not through a link, which another user may have made."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except (OSError, ValueError) as error:
        refused = CommandFailed(f"its output cannot be kept in that file: {_why(error)}")
    raise refused


class Command:
    """A started command."""

    def __init__(
        self, process: subprocess.Popen[bytes], carrier: Carrier, before: set[int]
    ) -> None:
        """``before``: the process groups that this session had before its start."""
        self._process = process
        self._carrier = carrier
        self._before = before
        loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = loop.create_future()
        threading.Thread(target=self._wait, args=(loop,), name="outlast-wait", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        """Whether its own process has ended; others that it started may be left."""
        return self._code.done()

    async def wait(self) -> int:
        """Wait for the end of its own process; return the exit code, negative for a signal."""
        return await asyncio.shield(self._code)

    def ask_to_end(self) -> None:
        """Send SIGTERM to all of its processes."""
        for pgid in self._find_left() | {self._process.pid}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pgid, signal.SIGTERM)

    async def clear(self) -> list[str]:
        """Kill its remaining processes, and wait until they are gone; return its last lines."""
        deadline = SYSTEM.boot() + EMPTY_SECONDS
        kill_group(self._process.pid)
        while (left := self._find_left()) and SYSTEM.boot() < deadline:
            for pgid in left:
                kill_group(pgid)
            await SYSTEM.sleep(0.01)
        return await self._carrier.finish()

    def _find_left(self) -> set[int]:
        """Return the groups that its runner's session has got since it was started."""
        return groups_of({os.getpid()}) - self._before

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(self._code.set_result, code)


async def start_command(
    argv: Sequence[str], *, cwd: str | None, env: Mapping[str, str], output: str | None
) -> Command:
    """Start a command. ``output``: a file to which all its output is appended. Raises
    CommandFailed, with the exit code that a shell would give, if it cannot be started."""
    if not argv:
        raise CommandFailed("there is no command")
    before = groups_of({os.getpid()})
    carrier = Carrier(output)
    try:
        process = _spawn(argv, cwd, env, carrier.write_end)
    except (OSError, ValueError) as error:  # a NUL in an argument is a ValueError
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        what = "its folder: " if getattr(error, "filename", None) == cwd is not None else ""
        refused = CommandFailed(f"it cannot be started: {what}{_why(error)}", exit_code=code)
    else:
        return Command(process, carrier, before)
    await carrier.finish()
    raise refused


def _spawn(
    argv: Sequence[str], cwd: str | None, env: Mapping[str, str], stdout: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        process_group=0,
    )


def _why(error: Exception) -> str:
    """Return what is wrong, without the arguments: the program, the folder and the file."""
    if getattr(error, "errno", None) == errno.ELOOP:
        return "it is a link"
    return (isinstance(error, OSError) and error.strerror) or text_of(error)
