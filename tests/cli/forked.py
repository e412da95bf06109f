"""Starts commands without starting Python: a process that has loaded the program forks for each.

Such a command is a process like any other, with its own arguments, environment, directory, files
and exit code. Only what a new interpreter does is not there: the imports, and what it reads from
the environment as it starts (``PYTHON...``).

This file is also the server's program: it takes orders on its standard input, a socket.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_LOADED = ("asyncpg", "rich.table", "sqlite3", "structlog", "outlast.store.postgres.store")
_BYTES = 65_536
_END_SECONDS = 10.0


class ForkServer:
    """A process that has loaded ``outlast``, as a context manager. Not for two threads at once."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=theirs.fileno(), env=env
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._orders.close()
        self._process.wait(_END_SECONDS)

    def run(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``outlast`` with these arguments and wait for its end, as ``subprocess.run``."""
        order = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)})
        with contextlib.ExitStack() as files:
            out, err = (files.enter_context(_file()) for _ in range(2))
            answers, theirs = map(files.enter_context, socket.socketpair())
            fds = [theirs.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self._orders, [f"{order}\n".encode()], fds)
            theirs.close()
            code = _end(files.enter_context(answers.makefile("r")), answers, timeout)
            texts = [_text(each) for each in (out, err)]
        return subprocess.CompletedProcess([*arguments], code, *texts)


def _end(lines: Any, answers: socket.socket, timeout: float) -> int:
    """Return the exit code; kill a command that takes longer."""
    answers.settimeout(timeout)
    pid = int(lines.readline())
    try:
        return int(lines.readline())
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise


def _file() -> Any:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read())


# --- the server ----------------------------------------------------------------------------------


def serve() -> int:
    """Fork for each order; return, in the process of a command, that command's exit code."""
    from outlast.cli.program import COMMANDS

    for module in (*_LOADED, *(f"outlast.cli.{room}" for room in COMMANDS)):
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for a command are reaped
    orders = socket.socket(fileno=os.dup(0))
    while True:
        order, fds, _, _ = socket.recv_fds(orders, _BYTES, 3)
        if not order:
            return 0
        while not order.endswith(b"\n"):
            order += orders.recv(_BYTES)
        if os.fork() == 0:
            orders.close()
            return _carry_out(json.loads(order), *fds)
        for each in fds:
            os.close(each)


def _carry_out(order: Any, answers: int, out: int, err: int) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(answers, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(answers)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for mine, standard in ((out, 1), (err, 2)):
        os.dup2(mine, standard)
        os.close(mine)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["outlast", *order["arguments"]]
    sys.path[0] = order["cwd"]  # as `python -m` does
    from outlast.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(serve())
