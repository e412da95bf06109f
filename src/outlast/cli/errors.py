"""Turn errors into messages and exit codes.

0    done
1    the answer is no, or it could not be done: no such job or schedule, a job that is not dead, a
     key that another task has, a migration that is due
2    wrong usage: an option, a URL, JSON, an unknown task, an application that cannot be imported
3    the store cannot be used: unreachable, missing, damaged, of an incompatible schema
70   a fault of Outlast itself, or a limit of the system
74   the answer cannot be written: a full disk
130  interrupted
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import outlast
from outlast.base.credentials import hide_logins
from outlast.base.text import cut, safe
from outlast.errors import (
    ApplicationError,
    BadData,
    ConfigError,
    OutlastError,
    StoreError,
    UsageError,
    describe,
    text_of,
)

DONE, NOT_SO, WRONG_USAGE, STORE_UNUSABLE, FAULT, INTERRUPTED = 0, 1, 2, 3, 70, 130
UNWRITTEN = 74  # EX_IOERR of sysexits.h
MESSAGE_MAX = 1_000  # characters
TRACEBACK_LINES_MAX = 24
DEBUG_VARIABLE = "OUTLAST_DEBUG"
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}
_SYSTEM_S = "the system is at a limit: `ulimit -a`, `free` and `df` show which; give it more"

_OWN = str(Path(outlast.__file__).parent)


class Failed(OutlastError):
    """The answer is no, or it could not be done; the exit code is 1."""


class AppImportError(ApplicationError):
    """An application does not import; the message has the tail of the user's own traceback."""

    def __init__(self, message: str, tail: str = "") -> None:
        super().__init__(message)
        self.tail = tail


_CODES: dict[int, tuple[type[OutlastError], ...]] = {
    WRONG_USAGE: (BadData, ConfigError, ApplicationError, UsageError),
    STORE_UNUSABLE: (StoreError,),
    NOT_SO: (OutlastError,),
}
"""Exit code -> its errors. The first that fits counts: BadData is an error of the store, too."""


def code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    return next((code for code, kinds in _CODES.items() if isinstance(error, kinds)), FAULT)


def say(message: str) -> None:
    """Write ``outlast: message`` to stderr, as one or two plain lines."""
    text = cut(safe(hide_logins(message)).strip(), MESSAGE_MAX)
    _print(f"outlast: {text}")


def _print(text: str) -> None:
    """Write to stderr; if that fails, only the exit code shows the error."""
    with suppress(OSError):
        print(text, file=sys.stderr)
    flush_errors()


def flush_errors() -> None:
    """Flush stderr, or drop the rest if that fails: otherwise the flush at the end of the process
    would change its exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def as_typed(text: str, program: str) -> str:
    """Return advice with commands as they are typed here: a project's own program, which knows the
    application, runs them under its own name."""
    if program == "outlast":
        return text
    return text.replace("`outlast ", f"`{program} ").replace(" MODULE:APP`", "`")


def tell(error: Exception, program: str = "outlast") -> int:
    """Report an error to a person at a prompt; return the exit code."""
    code = code_of(error)
    message = text_of(error)
    if code == FAULT:
        if os.environ.get(DEBUG_VARIABLE):
            _print(hide_logins("".join(traceback.format_exception(error))))
        whose = _SYSTEM_S if _is_at_a_limit(error) else "this is a fault of Outlast, not of yours"
        message = f"{describe(error)}\n{whose}; {DEBUG_VARIABLE}=1 shows where it is"
    elif isinstance(error, ApplicationError):
        # a worker's own has the traceback after its message's first line
        message, _, rest = message.partition("\n")
        tail = error.tail if isinstance(error, AppImportError) else rest
        if kept := tail.rstrip().splitlines()[-TRACEBACK_LINES_MAX:]:
            _print(safe(hide_logins("\n".join(kept))))
    say(as_typed(message, program))
    return code


def _is_at_a_limit(error: Exception) -> bool:
    """Whether the system refuses files, threads, memory or disk to this process."""
    is_refused = isinstance(error, OSError) and error.errno in _SCARCE
    return is_refused or isinstance(error, MemoryError) or "can't start new thread" in str(error)


def traceback_tail(error: BaseException | None) -> str:
    """Return the traceback of the user's module, without the machinery above it."""
    if error is None:
        return ""
    own = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not _ours(frame.filename)
    ]
    if not own and not isinstance(error, SyntaxError):
        return ""
    told = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
    return "".join([*told, *traceback.format_exception_only(error)])


def _ours(file_name: str) -> bool:
    return file_name.startswith(("<frozen importlib", _OWN)) or "importlib" in file_name
