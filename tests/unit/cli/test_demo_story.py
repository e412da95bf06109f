"""The demo says so, and ends with an error, where the job did not end as promised."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from outlast.cli.demo_story import COUNT, Story
from outlast.cli.errors import Failed
from outlast.demo import PRIMES
from outlast.model.job import State
from tests.cases import each_case

SAVED = 20


def story(*outcomes: str, **result: int) -> Story:
    """A story whose job has ended so."""

    async def attempts(job_id: int) -> list[Any]:
        return [SimpleNamespace(outcome=each) for each in outcomes]

    async def job(job_id: int) -> Any:
        return SimpleNamespace(state=State.COMPLETED)

    async def returned() -> dict[str, int]:
        return result

    inspector: Any = SimpleNamespace(job=job, attempts=attempts)
    workers: Any = None
    made = Story(Console(file=io.StringIO()), inspector, workers, COUNT)
    handle: Any = SimpleNamespace(id=1, result=returned)
    made.job, made.saved = handle, SAVED
    return made


@each_case(
    "ended",
    [
        story("lost_worker", primes=PRIMES - 1, began_after=SAVED),
        story("lost_worker", primes=PRIMES, began_after=0),
        story("lost_worker", "lost_worker", primes=PRIMES, began_after=SAVED),
        story("failed", primes=PRIMES, began_after=SAVED),
        story(primes=PRIMES, began_after=SAVED),
    ],
)
async def test_an_end_that_is_not_as_promised_is_an_error(ended: Story) -> None:
    with pytest.raises(Failed, match="promised were one lost_worker and"):
        await ended.show_end({"primes": PRIMES, "began_after": SAVED})
