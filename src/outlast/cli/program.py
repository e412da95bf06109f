"""Run a command so that each error becomes plain lines and an exit code."""

from __future__ import annotations

import atexit
import errno
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeGuard

import outlast
from outlast.cli.errors import DONE, FAULT, INTERRUPTED, UNWRITTEN, flush_errors, say, tell

END_SECONDS = 10.0  # of Python's own end, for example to send traces: a platform kills later
BROKEN_PIPE = 141  # as a shell says it: 128 + SIGPIPE
OUTPUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def run(argv: Sequence[str] | None = None, app: str | None = None, program: str = "outlast") -> int:
    """Run one command; return the exit code. Nothing is raised, no traceback is printed. ``app``:
    the application of commands that take one; ``program``: the words typed before a command."""
    _open_closed_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv), app, program)
    finally:
        flush_errors()
    imported = "outlast.runner.application" in sys.modules  # which may have left files open
    if argv is None:
        if threading.active_count() == 1 and not imported:
            _leave(code)
        limit_end(code)
    return code


def limit_end(code: int) -> None:
    """End this process if it is still there after END_SECONDS: Python waits for threads and exit
    functions of the user's code, which may never end."""

    def end() -> None:
        others = [each for each in threading.enumerate() if each is not threading.main_thread()]
        left = ", ".join(each.name for each in others if not each.daemon)
        why = f"make its threads daemons: {left}" if left else "its functions of atexit go on"
        say(f"imported code has kept this process from its end for {END_SECONDS:g} s: {why}")
        os._exit(code)

    last = threading.Timer(END_SECONDS, end)
    last.daemon = True
    with suppress(RuntimeError):  # the system lets no thread start
        last.start()


def _leave(code: int) -> None:
    """End this process, but do not take apart what it has loaded: that takes as long as it took to
    start Python. Return if the output cannot be written, so that Python reports it."""
    atexit._run_exitfuncs()  # noqa: SLF001
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(given: list[str], app: str | None, program: str) -> int:
    if os.environ.get("COLUMNS") == "0":  # from a terminal that does not report its size
        del os.environ["COLUMNS"]
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        code = _invoke(given, app, program)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:  # rich ends a program like this when its output has no reader
        return _unwritten(BrokenPipeError())
    except Exception as error:
        return _unwritten(error) if _is_of_output(error) else _report_error(error, program)
    return code


def _invoke(given: list[str], app: str | None, program: str) -> int:
    if given[:1] == ["--version"]:
        print(f"outlast {outlast.__version__}")
        return DONE
    from outlast.cli.tree import invoke  # typer: it takes longer than most answers

    return invoke(given, app, program)


def _report_error(error: Exception, program: str) -> int:
    """Report an error: typer's own (recognised by their methods, not by their class), or ours."""
    from typer import Abort

    if isinstance(error, Abort):
        return INTERRUPTED
    if not hasattr(error, "format_message"):
        return tell(error, program)
    from outlast.cli.usage import message_of

    text = plainly(message_of(error).replace("Value error, ", ""), error)
    path = getattr(getattr(error, "ctx", None), "command_path", "outlast")
    say(f"{text}\nrun `{path} --help` to see how it is used")
    return int(getattr(error, "exit_code", FAULT))


def plainly(text: str, error: Exception) -> str:
    """Return typer's message in plain words: with numbers instead of types, and with where to put a
    negative number, which typer takes for an unknown option."""
    if re.fullmatch(r"-\.?\d+", str(getattr(error, "option_name", ""))):
        return f"{text}\nwrite -- before an argument that begins with a dash, after all options"
    text = re.sub(r"is not a valid float( range)?\b", "is not a number", text)
    return re.sub(r"is not a valid int(eger)?( range)?\b", "is not a whole number", text)


def _open_closed_streams() -> None:
    """Open closed standard streams on /dev/null: otherwise the next opened file, such as the
    store's, gets the descriptor of one of them."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _is_of_output(error: Exception) -> TypeGuard[OSError]:
    """Whether the error means that stdout cannot be written; a store raises our own errors."""
    return isinstance(error, OSError) and error.errno in OUTPUT_ERRORS


def _unwritten(error: OSError) -> int:
    """Report that the answer is lost; the flush at the end of the process must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # its reader has gone away on purpose
        return BROKEN_PIPE
    say(f"the answer cannot be written: {error.strerror}\nwhat the command has changed is kept")
    return UNWRITTEN
