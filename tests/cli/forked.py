"""Starts commands without starting Python: a process that has loaded the program forks for each.

Such a command is a process like any other, with its own arguments, environment, directory, files
and exit code. Only what a new interpreter does is not there: the imports, what it reads from the
environment as it starts (``PYTHON...``), and that it takes all modules apart in the end, which
took two thirds of the processor time of a short command.

This file is also the server's program: it takes orders on its standard input, a socket.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_LOADED = (
    "asyncpg",
    "importlib.resources.readers",
    "outlast.cli.job_page",
    "outlast.cli.show",
    "outlast.insight.doctor",
    "outlast.runner.application",
    "outlast.store.postgres.store",
    "outlast.store.sqlite.store",
    "rich.table",
    "structlog",
)
_DJANGO = (  # what needs no settings
    "django.contrib.staticfiles.handlers",
    "django.core.management.commands.shell",
    "django.core.management.commands.test",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.executor",
    "django.forms",
    "django.test",
)
_BYTES = 65_536
_END_SECONDS = 60.0
GONE = "gone"
_ended: list[int] = []


class ForkServer:
    """A process that has loaded ``outlast``, as a context manager. Not for two threads at once.

    With ``script`` it runs that program instead, which uses Django.
    """

    def __init__(self, env: Mapping[str, str], script: Path | None = None) -> None:
        self._orders, theirs = socket.socketpair()
        program = [__file__] if script is None else [__file__, str(script)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *program], stdin=theirs.fileno(), env=env
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._orders.close()
        self._process.wait(_END_SECONDS)

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        meanwhile: Callable[[int], object] = lambda pid: None,
        **odd: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``outlast`` with these arguments and wait for its end, as ``subprocess.run``.

        ``meanwhile`` is called with its pid once it has begun. ``patience``: seconds that it waits
        for locks and for a server (``reach``: for that alone); ``user``: the number of the user
        that it becomes; ``streams``: names of standard streams -> paths that they lead to, GONE (a
        pipe without a reader) or None (closed).
        """
        order = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env), **odd})
        with contextlib.ExitStack() as files:
            out, err = (files.enter_context(_file()) for _ in range(2))
            answers, theirs = map(files.enter_context, socket.socketpair())
            fds = [theirs.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self._orders, [f"{order}\n".encode()], fds)
            theirs.close()
            lines = files.enter_context(answers.makefile("r"))
            answers.settimeout(timeout)
            pid = int(lines.readline())
            meanwhile(pid)
            code = _end(pid, lines)
            texts = [_text(each) for each in (out, err)]
        return subprocess.CompletedProcess([*arguments], code, *texts)


def _end(pid: int, lines: Any) -> int:
    """Return the exit code; kill a command that takes longer."""
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
    atexit.register(_leave)  # what is registered later is called before it
    import typer

    from outlast.cli import tree

    django = _DJANGO if sys.argv[1:] else ()
    for module in (
        *_LOADED,
        *django,
        *(f"outlast.cli.{room}" for room, _ in tree.COMMANDS.values()),
    ):
        importlib.import_module(module)
    typer.main.get_command = functools.partial(_same, typer.main.get_command(tree.build()))
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for a command are reaped
    orders = socket.socket(fileno=os.dup(0))
    while True:
        order, fds, _, _ = socket.recv_fds(orders, _BYTES, 3)
        if not order:
            return 0
        while not order.endswith(b"\n"):
            order += orders.recv(_BYTES)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # none in the midst of a fork
        if os.fork() == 0:
            orders.close()
            return _carry_out(json.loads(order), *fds)
        for each in fds:
            os.close(each)


def _same(tree: Any, _: object) -> Any:
    """Return the tree of commands that was built before the fork."""
    return tree


def _carry_out(order: Any, answers: int, out: int, err: int) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(answers, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # it was killed: nothing waits for it any more
            os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(answers)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for mine, standard in ((out, 1), (err, 2)):
        os.dup2(mine, standard)
        os.close(mine)
    _become(order)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    script = sys.argv[1:]
    sys.argv = [*(script or ["outlast"]), *order["arguments"]]
    # as `python SCRIPT` and `python -m` do
    sys.path[0] = os.path.dirname(script[0]) if script else order["cwd"]
    main = functools.partial(_run_script, script[0]) if script else _main()

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = main()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # none on the way out of here
    except KeyboardInterrupt:  # before it began, or after its end
        code = 130
    _ended.append(code)
    return code


def _leave() -> None:
    """End a command here that has returned its exit code: only taking it apart is left to do.

    If its streams take nothing more, the interpreter goes on, and ends as it always does then.
    """
    if _ended:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(*_ended)


def _main() -> Callable[[], int]:
    from outlast.cli import main

    return main


def _run_script(path: str) -> int:
    runpy.run_path(path, run_name="__main__")
    return 0


def _become(order: Any) -> None:
    """Do what only some orders ask for: see ``ForkServer.run``."""
    if "patience" in order:
        _be_impatient(order["patience"], order.get("reach", order["patience"]))
    if "user" in order:
        os.setgroups([])
        os.setgid(order["user"])
        os.setuid(order["user"])
    for name, path in order.get("streams", {}).items():
        _lead(name, path)


def _lead(name: str, path: str | None) -> None:
    """Let a standard stream lead elsewhere, as Python finds it when it starts."""
    number = ("stdin", "stdout", "stderr").index(name)
    if path is None:
        os.close(number)
        setattr(sys, name, None)
    elif path == GONE:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, number)
        os.close(writer)
    else:
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    if path is not None:
        mode = "w" if number else "r"
        setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _be_impatient(seconds: float, reach: float) -> None:
    from outlast.store.postgres.readable import ReadablePostgres
    from outlast.store.sqlite.readable import ReadableSqlite

    for store, options in (
        (ReadableSqlite, {"busy_timeout": seconds}),
        (ReadablePostgres, {"statement_timeout": seconds, "connect_timeout": reach}),
    ):
        made: Any = functools.partialmethod(_made, store.__init__, options)
        store.__init__ = made  # type: ignore[method-assign]


def _made(
    self: Any, make: Callable[..., None], more: Mapping[str, float], *args: Any, **options: Any
) -> None:
    make(self, *args, **{**options, **more})


if __name__ == "__main__":
    sys.exit(serve())
