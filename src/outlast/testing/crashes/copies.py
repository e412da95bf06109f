"""Run a part of a crash test in a copy of this process, made by a fork; a copy may be killed."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from outlast.errors import UsageError

T = TypeVar("T")
Tell = Callable[[Any], NoReturn]


class Copy(Generic[T]):
    """A copy of this process, which runs a function and ends. The function gets ``die``, which
    returns its argument as the result and kills the copy."""

    def __init__(self, function: Callable[[Tell], T]) -> None:
        self._told, tell = os.pipe()
        with warnings.catch_warnings():  # other threads: Outlast's own survive a fork
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            os.close(self._told)
            _run(function, tell)
        os.close(tell)

    def result(self) -> T:
        """Wait for the end; return what the function returned, or raise what it raised."""
        with os.fdopen(self._told, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        if not told:
            raise UsageError(
                f"a run has ended its process, with status {os.waitstatus_to_exitcode(status)}:"
                " the task must not end it"
            )
        result, error = pickle.loads(told)  # noqa: S301  # of our own copy
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Kill it, if its result was not taken."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._told)


def _run(function: Callable[[Tell], Any], tell: int) -> NoReturn:
    def write(result: Any, error: BaseException | None) -> None:
        with os.fdopen(tell, "wb") as pipe:
            pipe.write(pickle.dumps((result, error)))

    def die(result: Any) -> NoReturn:
        write(result, None)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    try:
        write(function(die), None)
    except BaseException as error:  # it is raised in the first process
        write(None, error if isinstance(error, UsageError) else RuntimeError(repr(error)))
    finally:
        os._exit(0)
