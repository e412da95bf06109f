"""Splits a large enqueue into statements of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from outlast.store.protocol import ENQUEUE_BYTES, ENQUEUE_MAX

T = TypeVar("T")


def split(
    items: Iterable[T], weigh: Callable[[T], tuple[int, int]], size_max: int | None = None
) -> Iterator[list[T]]:
    """Yield items in batches of at most ENQUEUE_MAX rows and ``size_max`` characters (without it,
    ENQUEUE_BYTES), except for a single one that is larger. ``weigh`` returns the rows and the
    characters of an item."""
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
