"""Import MODULE:APP: here, to enqueue, or in a child process that reports its contents.

A worker runs no code of its user's, and importing a module runs it. So before a worker starts, a
child process imports the application once and reports its store's URL and its tasks; an application
that does not import is refused there, before anything is created or registered.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

import msgspec

from outlast.base.credentials import redact
from outlast.cli.errors import AppImportError, traceback_tail
from outlast.client.app import App
from outlast.errors import ApplicationError, text_of

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
            f"{spec} ends the program while it is imported ({text_of(error)})"
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
        """Wait for the child's report and return it. Raises AppImportError, also if it takes longer
        than a runner may."""
        if not select.select([self._answer], [], [], IMPORT_SECONDS_MAX)[0]:
            raise AppImportError(
                f"{self._spec}: its import has not ended after {IMPORT_SECONDS_MAX:g} seconds",
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
        output = ends.enter_context(tempfile.TemporaryFile()) if on_line else None
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "outlast.cli.probe", spec, str(write)],
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
