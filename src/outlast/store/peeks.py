"""Defines the values that each worker polls all the time."""

from __future__ import annotations

import msgspec


class Neighbour(msgspec.Struct, frozen=True):
    """The lock file of another live worker of the same host, where this program looks for it."""

    worker_id: int
    lock_path: str
    lock_device: int | None
    lock_inode: int | None


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """The values that each worker polls all the time; their cost does not depend on the number of
    workers.

    Attributes:
        next_due: in how many seconds a job that is in no line may fall due; zero or less if one is
            due, None if there is none. A job more than a minute ahead may be left out.
        drawn: the highest position ever drawn, which rises whenever a job joins a line.
        next_tick, pauses: as in a ``Snapshot``.
        watches: the marks of the workers that watch over all others (``model.watch``).
        neighbours: the next few live workers of the same host whose lock files are in the same
            directory as the worker's own.

    A store may leave all of it out: then each of its workers watches.
    """

    next_due: float | None = None
    drawn: int | None = None
    next_tick: float | None = None
    pauses: str | None = None
    watches: tuple[int, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
