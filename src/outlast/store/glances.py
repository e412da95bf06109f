"""What each worker reads of a store all the time."""

from __future__ import annotations

import msgspec


class Neighbour(msgspec.Struct, frozen=True):
    """The lock file of another live worker of the same host, where this program looks for it."""

    worker_id: int
    lock_path: str
    lock_device: int | None
    lock_inode: int | None


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What each worker reads all the time; its cost does not depend on how many there are.

    ``next_due``: in how many seconds a job that is in no line may fall due, 0 and less where one
    is; None: there is none. ``drawn``: the highest position ever drawn, which rises whenever a job
    joins a line. ``oldest``: the number of the oldest transaction that is open and may have drawn
    one, read after ``drawn``, and ``newest``: a number above all that were given out before this
    glance was asked for; None: this glance does not say. ``next_tick`` and ``pauses``: as in a
    ``Snapshot``. ``watches``: the marks of those who watch over all (``model.watch``).
    ``neighbours``: the next few live workers of the same host whose lock files are where the
    worker's own is. A store may say none of it: then each of its workers watches."""

    next_due: float | None = None
    drawn: int | None = None
    oldest: int | None = None
    newest: int | None = None
    next_tick: float | None = None
    pauses: str | None = None
    watches: tuple[int, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
