"""A worker serves the tasks whose tags it has, and names the missing tags of the others."""

from __future__ import annotations

import pytest

from outlast.base.config import worker_settings
from outlast.errors import ConfigError
from outlast.runner.protocol import Hello, TaskInfo
from outlast.store.values import ClaimRequest
from outlast.worker.runners.tags import missing, split_by_tags
from tests.cases import each_case
from tests.unit.worker.runners.pool_kit import CONCURRENCY, SIZE, Bench
from tests.unit.worker.worker_kit import claimed

PLAIN = TaskInfo("plain", own_runner=False)
TRAIN = TaskInfo("train", own_runner=False, requires=["gpu", "eu"])


async def bench_with(*tags: str) -> Bench:
    bench = Bench(tags=tags)
    await bench.pool.keeper.run_once()
    for runner in bench.runners:
        runner.says(Hello([PLAIN, TRAIN], None, "3"))
    return bench


@each_case(
    ("requires", "tags", "lacking"),
    [
        ([], [], []),
        ([], ["gpu"], []),
        (["gpu"], ["gpu", "eu"], []),
        (["gpu", "eu"], ["gpu"], ["eu"]),
        (["b", "a"], [], ["a", "b"]),
        (["gpu"], ["GPU"], ["gpu"]),
    ],
)
def test_all_tags_of_a_task_must_be_among_the_worker_s(requires, tags, lacking):
    assert missing(requires, tags) == lacking


def test_tasks_are_split_into_those_to_serve_and_what_the_others_need():
    assert split_by_tags([PLAIN, TRAIN], ["eu"]) == ({"plain": False}, {"train": ["gpu"]})
    render = TaskInfo("render", own_runner=True, uses={"gpu": 2, "disk": 1})
    assert split_by_tags([render], [], {"gpu": 2, "disk": 1}) == ({"render": True}, {})
    assert split_by_tags([render], [], {"gpu": 1}) == ({}, {"render": ["disk=1", "gpu=2"]})


async def test_a_pool_asks_only_for_what_its_tags_allow():
    bench = await bench_with("eu")
    assert bench.pool.starter.tasks() == ["plain"]
    assert bench.pool.starter.lacks() == {"train": ["gpu"]}
    assert bench.requests(0) == [ClaimRequest(["plain"], SIZE * CONCURRENCY, [])]


async def test_a_pool_with_all_tags_asks_for_everything():
    bench = await bench_with("gpu", "eu", "more")
    assert (bench.pool.starter.tasks(), bench.pool.starter.lacks()) == (["plain", "train"], {})


async def test_what_was_claimed_without_the_tags_is_handed_back_uncharged():
    bench = await bench_with()
    bench.place(claimed(1, "train"))
    (end,) = bench.ends()
    assert (end.outcome, end.failures, end.losses) == ("released", 0, 0)


@each_case(
    ("tags", "says"),
    [("gpu", "tags must be a list of names"), (["a b"], "a tag must be"), ([""], "a tag must be")],
)
def test_tags_are_checked_like_queues(tags, says):
    with pytest.raises(ConfigError, match=says):
        worker_settings(tags=tags)
