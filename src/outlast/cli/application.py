"""Import MODULE:APP: here, to enqueue, or in a child process that reports its contents.

A worker runs no code of its user's, and importing a module runs it. So before a worker starts, a
child process imports the application once and reports its store's URL and its tasks; an application
that does not import is refused there, before anything is created or registered.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

import outlast
from outlast.base.credentials import redact
from outlast.cli.errors import AppImportError, traceback_tail
from outlast.client.app import App
from outlast.errors import ApplicationError, text_of
from outlast.runner.tether import die_with_parent

IMPORT_SLOW_SECONDS = 60.0  # after each of these, the child shows its current line on stderr
IMPORT_SECONDS_MAX = 300.0  # as for a runner's start


class Found(msgspec.Struct, frozen=True):
    """The contents of an imported application; ``error`` is set if it does not import.
    ``requires``, ``uses``: the tags and units that some of its tasks need; ``queues``: the queues
    of its tasks; ``folders``: the folders of its own code; ``encryption``:
    ``Payloads.encryption``."""

    url: str = ""
    wakeup: str | None = None
    tasks: list[str] = []
    aliases: list[str] = []
    requires: dict[str, list[str]] = {}
    uses: dict[str, dict[str, int]] = {}
    queues: list[str] = []
    folders: list[str] = []
    encryption: str = "none"
    error: str | None = None
    tail: str = ""

    def __repr__(self) -> str:
        return f"<found for {redact(self.url)}: {self.error or self.tasks}>"


def load(spec: str) -> App:
    """Import MODULE:APP into this process. Its output goes to stderr: stdout is for answers.

    Raises AppImportError with the tail of the module's own traceback.
    """
    from outlast.runner.application import load_app

    try:
        with contextlib.redirect_stdout(sys.stderr):
            return load_app(spec)
    except ApplicationError as error:
        raise AppImportError(text_of(error), traceback_tail(error.__cause__)) from error
    except SystemExit as error:
        raise AppImportError(
            f"{spec} exits the program while it is imported ({text_of(error)})"
        ) from error


def check_application(spec: str) -> Found:
    """Import MODULE:APP in a child process; return its contents. Raises AppImportError."""
    with start_check(spec) as look:
        return look.wait()


class ApplicationCheck:
    """A running child process that imports an application."""

    def __init__(self, spec: str, child: subprocess.Popen[bytes], answer: IO[bytes]) -> None:
        self._spec = spec
        self._child = child
        self._answer = answer

    def wait(self) -> Found:
        """Wait for the child's report and return it. Raises AppImportError if the import fails, or
        takes longer than a runner may."""
        if not select.select([self._answer], [], [], IMPORT_SECONDS_MAX)[0]:
            raise AppImportError(
                f"importing {self._spec} has taken more than {IMPORT_SECONDS_MAX:g} seconds",
                "Its stack is above.",
            )
        text = self._answer.readline()
        self._child.wait()
        if not text:
            code = self._child.returncode
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise AppImportError(f"{self._spec}: the process that imported it died ({how})")
        found = msgspec.json.decode(text, type=Found)
        if found.error is not None:
            raise AppImportError(found.error, found.tail)
        return found


@contextlib.contextmanager
def start_check(
    spec: str, on_line: Callable[[int, str], None] | None = None
) -> Iterator[ApplicationCheck]:
    """Start to import MODULE:APP in a child process, which is killed at the end of the context.

    Its output goes to ``on_line(pid, text)`` at the end; without ``on_line``, to stderr at once.
    """
    read, write = os.pipe()
    with contextlib.ExitStack() as ends:
        answer = ends.enter_context(os.fdopen(read, "rb"))
        output = ends.enter_context(_open_file_without_name()) if on_line else None
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "outlast.cli.application", spec, str(write)],
                stdin=subprocess.DEVNULL,
                stdout=output or sys.stderr.fileno(),
                stderr=output,
                pass_fds=(write,),
                start_new_session=True,  # a Ctrl-C is for the parent, which kills it
            )
        finally:
            os.close(write)
        try:
            yield ApplicationCheck(spec, child, answer)
        finally:  # leave no child behind, even when interrupted
            child.kill()
            child.wait()
            if on_line is not None and output is not None:
                output.seek(0)
                for line in output:
                    on_line(0, line.decode(errors="replace").rstrip("\n"))


def _open_file_without_name() -> IO[bytes]:
    """Return a file in memory, which no disk can be too full for; macOS has none."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("outlast-import"), "w+b")
    return tempfile.TemporaryFile()


def main(spec: str, answer: int) -> None:
    """Write one ``Found`` as a line of JSON to the descriptor ``answer``."""
    die_with_parent()
    os.set_inheritable(answer, False)
    faulthandler.dump_traceback_later(IMPORT_SLOW_SECONDS, repeat=True)
    found = probe_application(spec)
    faulthandler.cancel_dump_traceback_later()
    with contextlib.suppress(BrokenPipeError), os.fdopen(answer, "wb") as pipe:  # no one waits
        pipe.write(msgspec.json.encode(found) + b"\n")
        pipe.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads that the module has started


def probe_application(spec: str) -> Found:
    """Return the contents of the application, or why it does not import."""
    try:
        app = load(spec)
        requires = {name: sorted(task.requires) for name, task in app.tasks.items()}
        aliases = sorted(alias for task in app.tasks.values() for alias in task.aliases)
        return Found(
            url=app.url,
            wakeup=app.wakeup,
            tasks=sorted(app.tasks),
            aliases=aliases,
            requires=requires,
            uses={name: task.uses for name, task in app.tasks.items() if task.uses},
            queues=sorted({task._placement.queue for task in app.tasks.values()}),  # noqa: SLF001
            folders=find_folders(sys.modules.values(), libraries()),
            encryption=app.stores.payloads.encryption,
        )
    except AppImportError as error:
        return Found(error=text_of(error), tail=error.tail)
    except Exception as error:
        return Found(error=f"cannot import {spec}: {text_of(error)}", tail=traceback_tail(error))


def libraries() -> tuple[str, ...]:
    """Return the folders of installed code: Python's own, other libraries, and Outlast."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    own = str(Path(outlast.__file__).parent)
    return (own, *(path for name in names if (path := sysconfig.get_path(name))))


def find_folders(modules: Iterable[object], installed: tuple[str, ...]) -> list[str]:
    """Return the folders with code of these modules that is not ``installed``. None of them lies
    inside another. A package gives its own folder, a single module the folder that holds it.
    """
    files = [getattr(module, "__file__", None) for module in list(modules)]
    folders = {Path(file).resolve().parent for file in files if isinstance(file, str)}
    own = [each for each in folders if each.is_dir() and not _lies_in(each, installed)]
    return sorted(str(each) for each in own if not any(up in own for up in each.parents))


def _lies_in(folder: Path, others: tuple[str, ...]) -> bool:
    if {"site-packages", "dist-packages"} & {*folder.parts}:
        return True
    return any(folder.is_relative_to(Path(other).resolve()) for other in others)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
