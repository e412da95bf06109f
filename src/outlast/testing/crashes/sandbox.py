"""Run a task in a folder of its own, with copies of its files, and refuse what would leave it.

What Python itself reports (audit events) decides: a file that is opened, renamed or removed, a
connection, a process. An extension module in C that opens files or sockets by itself is not seen.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import sqlite3
import sqlite3.dbapi2 as sqlite3_dbapi2
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from contextvars import Context, copy_context
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from outlast.client.app import App
from outlast.errors import UsageError
from outlast.store.backend import file_of
from outlast.testing.crashes.databases import REAL_CONNECT, Databases
from outlast.testing.crashes.files import make_open
from outlast.testing.crashes.recorder import Recorder, is_ours, name_jobs
from outlast.testing.faults import Killed

OUTSIDE = "outside"  # the folder for copies of files from elsewhere
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # event -> how many of its first arguments are paths
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"), 1),
    **dict.fromkeys(("os.rename", "os.link"), 2),
}
_DEVICES = {"/dev/null", "/dev/tty", "/dev/stdout", "/dev/stderr"}
_UNSEEN = ("psycopg", "psycopg2", "MySQLdb", "oracledb")  # drivers in C
_CONNECTS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"}


class Sandbox:
    """The folder of all runs: ``folder``, made again for each from ``template``.

    Attributes:
        recorder: of the run that is under way.
    """

    def __init__(self, base: Path, app: App, commands: Sequence[str]) -> None:
        self.base = base.resolve()
        self.template, self.folder = self.base / "template", self.base / "run"
        self.temporary = self.base / "tmp"
        self.recorder = Recorder()
        self._app = app
        self._origin = Path.cwd()
        self._commands = set(commands)
        file = file_of(app.url)
        self._store = self._origin / "outlast.db" if file is None else file
        for each in (self.template, self.temporary):
            each.mkdir(parents=True, exist_ok=True)

    @property
    def store(self) -> Path:
        """The file of the store, within the folder of a run."""
        return self.store_in(self.folder)

    def store_in(self, folder: Path) -> Path:
        """Return the file of the store within a folder."""
        return folder / self._part_of(self._store)

    def fill(self, copies: Sequence[str]) -> None:
        """Put the files that each run finds into the template: the store's, and the named ones."""
        self._copy_database(self._store, self.template / self._part_of(self._store))
        for name in copies:
            source = self._origin / name
            target = self.template / self._part_of(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy2(source, target)
            else:
                raise UsageError(f"--copy {name}: there is no such file or folder here")

    def _part_of(self, path: Path) -> Path:
        """Return where a file of the user is, relative to the folder of a run."""
        if path.is_relative_to(self._origin):
            return path.relative_to(self._origin)
        return Path(OUTSIDE, *path.parts[1:])

    def _copy_database(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() or not source.is_file():
            return
        with (
            closing(REAL_CONNECT(f"{source.as_uri()}?mode=ro", uri=True)) as whole,
            closing(REAL_CONNECT(target)) as copy,
        ):
            whole.backup(copy)

    @contextmanager
    def keeping_temporaries(self) -> Iterator[None]:
        """Within the block, temporary files are made in the sandbox."""
        folder = str(self.temporary)
        with (
            mock.patch.object(tempfile, "tempdir", folder),
            mock.patch.dict(os.environ, TMPDIR=folder),
        ):
            yield

    def place(self, name: str) -> Path:
        """Return where the copy of a SQLite file is, made at the first use in a run."""
        path = Path(os.path.realpath(self.folder / name))
        if path.is_relative_to(self.base):
            source, target = self._origin / path.relative_to(self.folder), path
        else:
            source, target = path, self.folder / self._part_of(path)
        Context().run(self._copy_database, source, target)  # this is no work of the attempt
        return target

    def name_of(self, path: str) -> str:
        """Return the name of a path in the report."""
        real = Path(os.path.realpath(path))
        return str(real.relative_to(self.folder)) if real.is_relative_to(self.folder) else str(real)

    def lasting_name(self, path: str) -> str:
        """Return the name of a file in the report; "" for a file of tempfile or a device."""
        name = self.name_of(path)
        return "" if name in _DEVICES or name.startswith(str(self.temporary)) else name

    @contextmanager
    def enter(self, recorder: Recorder) -> Iterator[None]:
        """Within the block, this is the working directory, empty but for copies, and the code of
        attempts is watched and kept in it."""
        self.recorder = recorder
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        databases = Databases(recorder, self.place, self.name_of, self.store)
        files = make_open(recorder, self.lasting_name)
        with ExitStack() as stack:
            for owner, name, new in (
                (builtins, "open", files),
                (io, "open", files),
                (sqlite3, "connect", databases.connect),
                (sqlite3_dbapi2, "connect", databases.connect),
                (os, "_exit", _staying(os._exit, recorder)),
                (threading.Thread, "start", _start_in_context(threading.Thread.start)),
                (ThreadPoolExecutor, "submit", _submit_in_context(ThreadPoolExecutor.submit)),
            ):
                stack.enter_context(mock.patch.object(owner, name, new))
            stack.callback(databases.close)
            for driver in _UNSEEN:
                with suppress(ImportError):
                    module = import_module(driver)
                    stack.enter_context(mock.patch.object(module, "connect", _refusing(recorder)))
            for verb in ("enqueue", "enqueue_many"):
                new = _reaching(getattr(self._app.stores, verb), recorder)
                stack.enter_context(mock.patch.object(self._app.stores, verb, new))
            stack.enter_context(chdir(self.folder))
            stack.enter_context(_watching(self._see))
            yield

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        """Make a point of an audit event, refuse it, or let it pass."""
        if self.recorder.attempt() is None or is_ours():
            return
        if event in _CONNECTS:
            self.recorder.refuse("the task connects to a server, which the sandbox refuses")
        elif event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
                self._change("open", (path,))
        elif event in _CHANGES:
            self._change(event.removeprefix("os."), args[: _CHANGES[event]])
        else:
            self._start(os.fsdecode(args[0] or args[1][0]) if args else "a copy of this process")

    def _start(self, command: str) -> None:
        program = command.split(maxsplit=1)[0]
        if not self._commands & {program, Path(program).name}:
            self.recorder.refuse(
                f"the task starts {command}, which the sandbox cannot hold:"
                f" --allow-command {Path(program).name} runs it in each run"
            )
        self.recorder.reach("command", f"start {Path(program).name}")

    def _change(self, verb: str, paths: Sequence[Any]) -> None:
        given = [os.fsdecode(path) for path in paths if not isinstance(path, int)]
        names = [self.lasting_name(path) for path in given]
        for name in names:
            if os.path.isabs(name):
                self.recorder.refuse(
                    f"the task writes to {name}, which is not in the sandbox: use a path relative"
                    " to the working directory, or one of tempfile"
                )
        if any(names):
            self.recorder.reach("file", " ".join([verb, *names]), names)


See = Callable[[str, tuple[Any, ...]], None]
_seen_by: list[See] = []  # at most one; an audit hook cannot be removed


@contextmanager
def _watching(see: See) -> Iterator[None]:
    _hook()
    _seen_by.append(see)
    try:
        yield
    finally:
        _seen_by.remove(see)


_TOLD = {"open", *_CHANGES, *_STARTS, *_CONNECTS}


@cache
def _hook() -> None:
    sys.addaudithook(_tell)


def _tell(event: str, args: tuple[Any, ...]) -> None:
    if _seen_by and event in _TOLD:
        _seen_by[-1](event, args)


def _start_in_context(start: Callable[..., None]) -> Callable[..., None]:
    """Return a ``Thread.start`` whose threads belong to the attempt that starts them."""

    def start_in_context(self: threading.Thread) -> None:
        context, run = copy_context(), self.run

        def run_until_killed() -> None:
            with suppress(Killed):
                context.run(run)

        self.run = run_until_killed  # type: ignore[method-assign]
        start(self)

    return start_in_context


def _submit_in_context(submit: Callable[..., Any]) -> Callable[..., Any]:
    def submit_in_context(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, copy_context().run, fn, *args, **kwargs)

    return submit_in_context


def _staying(end: Callable[[int], NoReturn], recorder: Recorder) -> Callable[[int], NoReturn]:
    """Return an ``os._exit`` that no attempt may call, since it would end all runs."""

    def end_process(status: int) -> NoReturn:
        if recorder.attempt() is not None:
            recorder.refuse("the task ends its process by os._exit: let it return, or raise")
        end(status)

    return end_process


def _refusing(recorder: Recorder) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        recorder.refuse("the task connects to a server of a database, which the sandbox refuses")

    return refuse


def _reaching(enqueue: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Return a function of the store's provider that enqueues jobs, which is a point."""

    async def reach_and_enqueue(jobs: Sequence[Any], *args: Any) -> Any:
        tasks = sorted({job.task for job in jobs})
        recorder.reach("enqueue", f"enqueue {', '.join(tasks)}", map(name_jobs, tasks))
        return await enqueue(jobs, *args)

    return reach_and_enqueue
