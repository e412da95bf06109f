"""Start the process of a crash test, confined by the kernel (``confine.py``); read its report."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from outlast.base.config import check_whole
from outlast.base.sync import loop_is_running
from outlast.errors import SyncInLoop, UsageError
from outlast.testing.crashes import confine
from outlast.testing.crashes.cases import CrashReport

POINTS_MAX = 100  # of more points, this many are tried
SEED_MAX = 2**32 - 1
PORT_MAX = 65_535
TEMPLATE = "template"
_MAGIC = b"SQLite format 3\0"
_LOUD = "there was NO SANDBOX: all that the task did is real"


class Request(msgspec.Struct, kw_only=True):
    """What the process runs. ``path``: ``sys.path``; the others are as in ``crash_test``."""

    folder: str
    app: str
    call: str
    arguments: dict[str, Any]
    allow_connect: list[int]
    allow_command: list[str]
    reset: str | None
    compare: str | None
    test_store: bool
    sandbox: bool
    point: int | None
    points_max: int
    seed: int
    path: list[str] = msgspec.field(default_factory=lambda: [*map(os.path.abspath, sys.path)])
    module: str = "outlast.testing.crashes.runs"


class CrashAnswer(msgspec.Struct, omit_defaults=True):
    """What the process leaves in the folder: a report, or why there is none."""

    report: CrashReport | None = None
    error: str = ""


def crash_test(
    app: str,
    call: str,
    *,
    arguments: Mapping[str, Any] | None = None,
    copy: Sequence[str] = (),
    allow_connect: Sequence[int] = (),
    allow_command: Sequence[str] = (),
    reset: str | None = None,
    compare: str | None = None,
    test_store: bool = False,
    sandbox: bool = True,
    point: int | None = None,
    points_max: int = POINTS_MAX,
    seed: int = 0,
) -> CrashReport:
    """Run a call without a crash, and then again with a crash at each of its points; return how the
    end depends on it.

    The application is imported in a process of its own, which the kernel confines, with all that it
    starts: it changes no file outside a temporary folder, which is its working directory, and
    connects to no port but the allowed ones. Each run is in a copy of this process; a kill is
    SIGKILL, and the next attempt is in another copy. See the page on crash tests.

    Args:
        app: the application: MODULE:APP.
        call: MODULE:FUNCTION. The function makes the files that the task finds, in the working
            directory, and returns the call, such as ``import_orders.call("orders.csv")``.
        arguments: of that function, by name; JSON.
        copy: files and folders that the task finds there, copied from the current one. A SQLite
            file is copied as of one moment.
        allow_connect: ports that it may connect to by TCP, on any host, as of a test service.
        allow_command: programs that the task may start. The sandbox holds them; what they do is no
            point.
        reset: a command of the shell that runs before each run, in the sandbox, and puts test
            services into their first state.
        compare: a command of the shell that runs after each run, in the sandbox: the lines that it
            prints are compared.
        test_store: whether the application's own store, on a server, is one for tests, which an
            allowed port may reach.
        sandbox: False: the kernel confines nothing, and all that the task does is real.
        point: only cases at this point.
        points_max: at how many points at most, at equal distances.
        seed: the seed of ``random`` in each run, and of the choice of points.

    Raises:
        UsageError: the task cannot be tested: it fails without a crash, say; or this kernel cannot
            hold a process.
    """
    check_whole("points_max", points_max, 1, 100_000)
    check_whole("seed", seed, 0, SEED_MAX)
    for port in allow_connect:
        check_whole("allow_connect", port, 1, PORT_MAX)
    if loop_is_running():
        raise SyncInLoop(
            "crash_test() would block the event loop that runs here: call it in a thread"
        )
    try:
        folder = Path(tempfile.mkdtemp(prefix="outlast-crash-")).resolve()
    except OSError as error:
        raise UsageError(f"{error.strerror}: set TMPDIR to a folder with room") from error
    try:
        for name in (TEMPLATE, "tmp"):
            (folder / name).mkdir()
        _copy_in(folder / TEMPLATE, copy)
        request = Request(
            folder=str(folder),
            app=app,
            call=call,
            arguments=dict(arguments or {}),
            allow_connect=[*allow_connect],
            allow_command=[*allow_command],
            reset=reset,
            compare=compare,
            test_store=test_store,
            sandbox=sandbox,
            point=point,
            points_max=points_max,
            seed=seed,
        )
        report = _run(folder, request)
    finally:  # TemporaryDirectory changes the rights of what a link in it names (CVE-2023-6597)
        shutil.rmtree(folder, ignore_errors=True)
    if not sandbox:
        report.notes.append(_LOUD)
    return report


def _copy_in(template: Path, names: Sequence[str]) -> None:
    here = Path.cwd()
    for name in names:
        source = Path(os.path.normpath(here / name))
        target = template / os.path.relpath(source, here)
        if not source.is_relative_to(here):
            raise UsageError(f"--copy {name} is not below {here}: start in a folder above it")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            logs = shutil.ignore_patterns("*-wal", "*-shm")
            shutil.copytree(source, target, copy_function=_copy, dirs_exist_ok=True, ignore=logs)
        elif source.exists():
            _copy(source, target)
        else:
            raise UsageError(f"--copy {name}: there is no such file or folder here")


def _copy(source: str | Path, target: str | Path) -> None:
    with open(source, "rb") as file:
        head = file.read(20)
    if not head.startswith(_MAGIC):
        shutil.copy2(source, target)
        return
    # In WAL mode a reader makes files beside one that no one has open, and leaves them.
    is_closed = head.endswith(b"\2\2") and not Path(f"{source}-wal").exists()
    address = f"{Path(source).as_uri()}?{'immutable=1' if is_closed else 'mode=ro'}"
    with (
        closing(sqlite3.connect(address, uri=True)) as whole,
        closing(sqlite3.connect(target)) as copy,
    ):
        whole.backup(copy)


def _run(folder: Path, request: Request) -> CrashReport:
    """Return the report of the process. What the application prints goes to stderr at its end."""
    temporary = str(folder / "tmp")
    output = folder / "output"
    with output.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-P", "-S", confine.__file__],
            env={**os.environ, "TMPDIR": temporary},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        with suppress(BrokenPipeError):
            child.communicate(msgspec.json.encode(request))
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        sys.stderr.write(output.read_text(errors="replace"))
    try:
        answer = msgspec.json.decode((folder / confine.ANSWER).read_bytes(), type=CrashAnswer)
    except (FileNotFoundError, msgspec.DecodeError):
        raise UsageError(
            f"the process of the runs has ended, with status {child.returncode}: the task must not"
            " end it"
        ) from None
    if answer.report is None:
        raise UsageError(answer.error)
    return answer.report
