"""Which job a test means, and what it is told of the others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import outlast
from outlast.testing import AppUnderTest, isolate

app = outlast.App()
ID = uuid.UUID(int=7)


@dataclass
class Address:
    street: str


@app.task
async def welcome(user: int, address: Address | None = None, *, plan: str = "free") -> None:
    pass


@app.task
async def audit(id: uuid.UUID, note: str = "") -> None:  # noqa: A002
    pass


@pytest.fixture
def jobs() -> Iterator[AppUnderTest]:
    with isolate(app) as under_test:
        yield under_test


def said(jobs: AppUnderTest, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        jobs.enqueued(*args, **kwargs)
    return str(raised.value)


def test_a_job_is_found_by_some_of_its_arguments(jobs: AppUnderTest) -> None:
    welcome.enqueue_sync(1)
    job = welcome.using(queue="slow").enqueue_sync(2, Address("Elm"), plan="pro")
    assert jobs.enqueued(welcome).id == job.id  # the newest
    assert jobs.enqueued(welcome, 2).id == job.id
    assert jobs.enqueued(welcome, plan="pro").id == job.id
    assert jobs.enqueued(welcome, address=Address("Elm")).id == job.id
    row = jobs.enqueued(welcome, 2).row
    assert row is not None
    assert row.queue == "slow"
    jobs.not_enqueued(audit)
    jobs.not_enqueued(welcome, 3)


def test_what_a_call_leaves_out_counts_with_its_default(jobs: AppUnderTest) -> None:
    welcome.enqueue_sync(1)
    jobs.enqueued(welcome, plan="free", address=None)
    assert "plan is 'free', not 'pro'" in said(jobs, welcome, plan="pro")


def test_arguments_are_compared_as_they_are_stored(jobs: AppUnderTest) -> None:
    audit.enqueue_sync(ID)
    jobs.enqueued(audit, ID)
    jobs.enqueued(audit, id=str(ID))
    assert "not '00000000-0000-0000-0000-000000000008'" in said(jobs, audit, uuid.UUID(int=8))


def test_the_message_shows_what_was_enqueued_instead_the_most_similar_first(
    jobs: AppUnderTest,
) -> None:
    welcome.enqueue_sync(1, plan="pro")
    for user in range(2, 8):
        welcome.enqueue_sync(user)
    audit.enqueue_sync(ID)
    assert said(jobs, welcome, 9, plan="pro").splitlines() == [
        "no job was enqueued that matches welcome(user=9, plan='pro')",
        "  job 1 welcome(user=1, plan='pro') [queued]: user is 1, not 9",
        *(
            f"  job {user} welcome(user={user}) [queued]: user is {user}, not 9;"
            " plan is 'free', not 'pro'"
            for user in range(2, 6)
        ),
        "  and 2 more of welcome",
        "  of other tasks: audit (1)",
    ]


def test_the_message_says_where_there_is_nothing(jobs: AppUnderTest) -> None:
    assert said(jobs, welcome).endswith("nothing was enqueued at all")
    audit.enqueue_sync(ID)
    assert said(jobs, welcome).endswith("none of welcome: audit (1)")
    with pytest.raises(AssertionError, match=r"a job matches audit\(\)"):
        jobs.not_enqueued(audit)


def test_true_is_not_one(jobs: AppUnderTest) -> None:
    welcome.enqueue_sync(1)
    jobs.not_enqueued(welcome, True)  # type: ignore[arg-type, unused-ignore]


def test_what_the_task_does_not_take_is_a_mistake_of_the_test(jobs: AppUnderTest) -> None:
    with pytest.raises(outlast.UsageError, match="welcome takes user, address, plan"):
        jobs.enqueued(welcome, usr=1)
    with pytest.raises(outlast.UsageError, match="takes user"):
        jobs.not_enqueued(welcome, 1, None, "free", 4)
    for wrong in (welcome.fn, welcome.using(queue="slow"), "welcome"):
        with pytest.raises(outlast.UsageError, match="is not a task"):
            jobs.enqueued(wrong)  # type: ignore[arg-type]
