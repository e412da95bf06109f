"""A test of many cases tries all of them, and tells those that fail."""

from __future__ import annotations

import pytest

from tests.cases import each_case


def test_cases_that_fail_are_told_and_the_others_are_tried() -> None:
    tried = []

    @each_case("raised", [KeyError, None])
    @each_case(("a", "b"), [(1, 1), (1, 2)])
    def rule(raised: type[Exception] | None, a: int, b: int) -> None:
        tried.append((raised, a, b))
        with pytest.raises(KeyError):
            if raised is not None:
                raise raised
        assert a == b

    with pytest.raises(BaseExceptionGroup) as told:
        rule()
    assert tried == [(KeyError, 1, 1), (KeyError, 1, 2), (None, 1, 1), (None, 1, 2)]
    one, both = told.value.exceptions
    assert one.__notes__ == ["of the case a=1, b=2", f"of the case raised={KeyError!r}"]
    assert isinstance(both, BaseExceptionGroup)
    assert len(both.exceptions) == 2


async def test_cases_of_a_coroutine_are_awaited() -> None:
    @each_case("number", [1, 2])
    async def rule(number: int) -> None:
        assert number == 1

    with pytest.raises(AssertionError) as told:
        await rule()
    assert told.value.__notes__ == ["of the case number=2"]
