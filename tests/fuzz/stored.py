"""Texts in the store: arguments, results, checkpoints, and documents of Outlast's own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from outlast.errors import BadArguments
from outlast.model.crash import Crash, Progress
from outlast.model.job import Policy
from outlast.payload.codec import decode_result
from outlast.payload.signature import Signature
from outlast.runner.protocol import Run, pack
from outlast.store import columns
from tests.fuzz.kit import BOMBS, SECONDS, Fuzzer, damaged, json_values
from tests.unit.client.test_attempt import FakeLink, attempt_of
from tests.unit.runner.execute_kit import Bench
from tests.unit.worker.worker_kit import claimed


class Colour(Enum):
    """A choice."""

    RED = "red"


@dataclass
class Point:
    """Two numbers, and what is below."""

    x: float
    y: float = 0.0
    next: Point | None = None


def plain(a: int, b: str = "") -> dict[str, int]:
    """Plain types."""
    return {b: a}


def loose(a, *rest, key=None, **more) -> Any:
    """No types."""
    return a, rest, key, more


def nested(a: list[Point], b: dict[str, list[int]], *, c: set[Colour] | None = None) -> list[Point]:
    """Types within types."""
    return a if b else []


def exact(a: Decimal, b: UUID, c: datetime, d: timedelta, e: bytes) -> Decimal:
    """Types that are written as text."""
    return a + len(e)


def chosen(
    a: Literal["x", 1], b: Annotated[int, msgspec.Meta(ge=0, le=9)], /, c: Path, *d: float
) -> tuple[int, ...]:
    """Limits."""
    return (b, *map(int, d)) if a and c.name else ()


TASKS: list[Callable[..., Any]] = [plain, loose, nested, exact, chosen]
SIGNATURES = [Signature(each, each.__name__) for each in TASKS]
RETURNS = [each.returns for each in SIGNATURES]
NAMES = ["a", "b", "c", "d", "e", "key", "rest", "more", "x", "next", "self"]
some = st.one_of(
    json_values,
    st.sampled_from(["red", "x", 1, "2026-01-01T00:00:00Z", "P1D", "AAAA", "1e999999999", "/p"]),
    st.lists(st.fixed_dictionaries({"x": json_values}), max_size=2),
)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return "{}"


def _alike(kind: type[msgspec.Struct]) -> st.SearchStrategy[str]:
    fields = dict.fromkeys(kind.__struct_fields__, json_values)
    return st.fixed_dictionaries({}, optional=fields).map(_json)


objects = st.dictionaries(st.sampled_from(NAMES), some, max_size=5).map(_json)
calls = st.sampled_from(
    [
        '{"a":1,"b":"x"}',
        '{"a":[{"x":1,"next":{"x":2}}],"b":{"k":[1]}}',
        '{"a":"x","b":3,"c":"/tmp","d":[1.5]}',
        '{"a":1,"a":2,"b":"twice"}',
        '{"a":"1.5","b":"00000000-0000-0000-0000-000000000000","c":"2026-01-01T00:00:00Z"}',
        '{"a":"NaN","c":"2026-01-01T00:00:00Z","d":"P1D","e":"AA=="}',
    ]
)
texts = st.one_of(
    objects,
    calls,
    damaged((objects | calls).map(str.encode)).map(lambda one: one.decode("utf-8", "replace")),
    st.text(max_size=30),
    st.sampled_from(BOMBS),
    st.builds(
        lambda name, bomb: f'{{"{name}":{bomb}}}', st.sampled_from(NAMES), st.sampled_from(BOMBS)
    ),
)


def values_are_read(text: str) -> None:
    """Arguments that the function can be called with, a value, or BadArguments."""
    for task, signature in zip(TASKS, SIGNATURES, strict=True):
        with contextlib.suppress(BadArguments):
            args, kwargs = signature.decode(text)
            inspect.signature(task).bind(*args, **kwargs)
    for annotation in RETURNS:
        with contextlib.suppress(BadArguments):
            decode_result(text, annotation)
    with contextlib.suppress(BadArguments):
        _ = attempt_of(FakeLink(), checkpoint=text).checkpoint


# --- as a runner uses them


class Claim(msgspec.Struct, frozen=True):
    """A claimed job of a row that a stranger has written."""

    task: str
    args: str
    checkpoint: str | None
    policy: str


claims = st.builds(
    Claim,
    st.sampled_from([each.__name__ for each in TASKS]) | st.text(max_size=9),
    texts,
    st.none() | texts,
    _alike(Policy) | st.sampled_from(['{"timeout":1e300}', '{"timeout":0.0}', '{"retries":-5}']),
)


def jobs_are_run(jobs: list[Claim]) -> None:
    """Each attempt has one end, for any content of its row."""
    asyncio.run(_jobs_are_run(jobs))


async def _jobs_are_run(jobs: list[Claim]) -> None:
    bench = Bench()
    for task in TASKS:
        bench.app.task(task)
    taken = [
        claimed(
            token,
            one.task,
            args=one.args,
            checkpoint=one.checkpoint,
            policy=columns.policy_of(one.policy),
        )
        for token, one in enumerate(jobs, 1)
    ]
    bench.executor.start(taken)
    async with asyncio.timeout(SECONDS):
        while len(bench.link.ends) < len(jobs):
            bench.link.told.clear()
            await bench.link.told.wait()
    assert sorted(end.token for end in bench.link.ends) == list(range(1, len(jobs) + 1))
    bench.executor.close()


# --- documents of Outlast's own

documents = st.one_of(
    _alike(Policy),
    _alike(Progress),
    _alike(Crash),
    st.lists(st.text(max_size=9) | json_values, max_size=4).map(_json),
    st.dictionaries(st.text(max_size=5), st.lists(st.text(max_size=5)), max_size=3).map(_json),
    texts,
)


def documents_are_read(text: str) -> None:
    """A readable value is in range and can be sent on; an unreadable one counts as not given."""
    policy, wrong = columns.read_policy(text)
    assert wrong is None or policy == Policy()
    limits = msgspec.structs.asdict(policy)
    for name, value in limits.items():
        if type(value) is float:
            assert math.isfinite(value), name
            assert 0 <= value <= columns.SECONDS_MAX, name
        assert isinstance(value, bool) or not isinstance(value, int) or 0 <= value < 2**31, name
    pack(Run(1, [claimed(1, policy=policy)]))
    progress = columns.progress_of(text)
    if progress is not None:
        msgspec.msgpack.encode(progress)
    columns.crash_of(text)
    assert all(isinstance(name, str) for name in columns.names_of(text))
    assert all(isinstance(name, str) for name in columns.lacks_of(text))
    names = ("policy", "progress", "crash", "queues", "tasks", "tags", "lacks")
    columns.find_malformed(dict.fromkeys(names, text))


FUZZERS = [
    Fuzzer("arguments, results, checkpoints", texts, values_are_read, few=80),
    Fuzzer("jobs in a runner", st.lists(claims, max_size=4), jobs_are_run, few=15),
    Fuzzer("documents in the store", documents, documents_are_read, few=100),
]
