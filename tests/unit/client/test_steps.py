"""Steps of attempts: what is sent for them, and what is refused."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from outlast.client.steps import returns_of
from outlast.errors import LostLease, StoreUnavailable, UsageError
from outlast.store.values import Answer
from tests.unit.client.test_attempt import FakeLink, attempt_of


def one() -> int:
    return 1


async def later(number: int) -> int:
    return number


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.mark.parametrize(("answer", "error"), [("refused", LostLease), ("busy", StoreUnavailable)])
async def test_a_step_that_is_not_kept_raises(
    link: FakeLink, answer: str, error: type[Exception]
) -> None:
    link.answer = Answer(answer)
    with pytest.raises(error):
        plain: Any = attempt_of(link, number=1).step_sync
        await asyncio.to_thread(plain, "one", one)
    with pytest.raises(error):
        await attempt_of(link, number=1).step("one", one)


async def test_a_save_after_a_step_is_not_where_the_attempt_went_on(link: FakeLink) -> None:
    attempt = attempt_of(link, '"here"')
    await attempt.save("here")
    await attempt.step("one", one)
    await attempt.save("here")
    assert [saved[-1] for saved in link.saves] == [True, False]


async def test_no_step_follows_a_completion(link: FakeLink) -> None:
    attempt = attempt_of(link)
    attempt.completed_in = True
    with pytest.raises(UsageError, match="no step can follow"):
        await attempt.step("one", one)


def test_a_coroutine_function_is_no_step_of_a_plain_task(link: FakeLink) -> None:
    attempt = attempt_of(link)
    steps: list[Any] = [attempt.step_sync, functools.partial(attempt.step_in_sync, object())]
    for step in steps:
        with pytest.raises(UsageError, match="must be plain, not async"):
            step("one", later, 1)


def test_the_type_of_a_value_is_that_of_the_function() -> None:
    assert returns_of(functools.partial(functools.partial(later, 1))) is int
    assert returns_of(lambda: 1) is not int
