"""Splits large calls into statements of a bounded size, and around one value that a store refuses.

A store refuses a whole batch when it refuses one value in it (a NUL byte, a number out of range).
If the batch were sent again unchanged, it would be refused forever, while the heartbeat keeps its
jobs alive. So the batch is halved until the bad outcome is alone, and that is replaced by an end
that any store takes. Nothing of a refused batch was written, so halves can be sent on their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from outlast.errors import BadData
from outlast.store.new_rows import rest_of
from outlast.store.protocol import ENQUEUE_BYTES, ENQUEUE_MAX
from outlast.store.values import NewJob

T = TypeVar("T")
A = TypeVar("A")


def split(
    items: Iterable[T], weigh: Callable[[T], tuple[int, int]], size_max: int | None = None
) -> Iterator[list[T]]:
    """Yield batches of at most ENQUEUE_MAX rows and ``size_max`` characters, except for a single
    larger item. ``weigh`` returns an item's rows and characters."""
    most = ENQUEUE_BYTES if size_max is None else size_max
    batch: list[T] = []
    rows = size = 0
    for item in items:
        more_rows, more_size = weigh(item)
        if batch and (rows + more_rows > ENQUEUE_MAX or size + more_size > most):
            yield batch
            batch, rows, size = [], 0, 0
        batch.append(item)
        rows, size = rows + more_rows, size + more_size
    if batch:
        yield batch


def share_the_rest(jobs: Sequence[NewJob]) -> bool:
    """Whether jobs without keys and dependencies differ only in arguments, tenants and streams."""
    first, policy, rest = jobs[0], jobs[0].policy, rest_of(jobs[0])
    return all(job is first or (job.policy is policy and rest_of(job) == rest) for job in jobs)


async def bisecting(
    call: Callable[[Sequence[T]], Awaitable[Sequence[A]]],
    items: Sequence[T],
    refused: Callable[[T, BadData], A],
    plain: Callable[[T], T] | None = None,
) -> list[A]:
    """Return the answers of ``call`` for all items, in their order. ``refused`` returns the answer
    for an item that the store refuses alone, even with escapes in its texts (``plain``): the
    encoding of a database may lack a character."""
    if not items:
        return []
    try:
        return list(await call(items))
    except BadData as error:
        (first, *rest) = items
        if not rest and plain is not None and (other := plain(first)) != first:
            return await bisecting(call, [other], lambda _, why: refused(first, why))
        if not rest:
            return [refused(first, error)]
    middle = len(items) // 2
    found = await bisecting(call, items[:middle], refused, plain)
    return found + await bisecting(call, items[middle:], refused, plain)
