"""One test for all cases of a rule."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., Any]


def each_case(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one test, which tells all cases that fail.

    For rules without fixtures that a case might change: pytest takes milliseconds for each test
    that it collects, in each of its processes, and a rule of a hundred cases is one rule.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    tries = [dict(zip(keys, case if len(keys) > 1 else [case], strict=True)) for case in cases]

    def decorate(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            async def all_cases(**given: Any) -> None:
                failures: list[BaseException] = []
                for one in tries:
                    with noted(one, failures):
                        await test(**given, **one)
                tell(failures)

        else:

            def all_cases(**given: Any) -> None:  # type: ignore[misc]
                failures: list[BaseException] = []
                for one in tries:
                    with noted(one, failures):
                        test(**given, **one)
                tell(failures)

        functools.update_wrapper(all_cases, test)
        signature = inspect.signature(test)
        rest = [each for name, each in signature.parameters.items() if name not in keys]
        all_cases.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return all_cases

    return decorate


@contextmanager
def noted(case: dict[str, Any], failures: list[BaseException]) -> Iterator[None]:
    """Keep the failure of a case, with the case, and go on."""
    try:
        yield
    except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:  # the last: of raises()
        error.add_note("of the case " + ", ".join(f"{name}={one!r}" for name, one in case.items()))
        failures.append(error)


def tell(failures: list[BaseException]) -> None:
    """Raise what has failed."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup("cases of one rule", failures)
