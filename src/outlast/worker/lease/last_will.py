"""Lets a worker's tether report the worker's death to the store, if only the worker was killed.

If the kernel (for want of memory) or ``kill -9`` ends only the worker, its tether survives, kills
the runners, sees their sessions empty, and releases the lock file. The free file proves the death,
but only to processes of this host. So the tether becomes this program, the worker's *last will*,
which checks the file as a reaper here would, and notes the death on the worker's row: workers of
other hosts need not wait until presence was absent for long enough.

The program writes nothing while the file is held or cannot be read: so not for a live worker,
stopped or not, even if its pipe has ended, nor for one that a process of it outlives. It does not
retry: if the store cannot be reached at once, presence and lease decide.

The will is a file in memory (``memfd_create``), open in the worker and in its tether: the store's
URL, with its password, is in no argument and no environment variable. This program has the worker's
own environment, in which drivers find settings that are not in the URL.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.runner.tether import NO_WILL
from outlast.store.backend import file_of, open_store
from outlast.store.lockfile import LockFile, Probe, boot_id, probe, read_begun
from outlast.store.protocol import Store
from outlast.store.values import LockIdentity

STORE_SECONDS = 5.0  # for the store's answer: a service manager may wait for this process to end
HELD_SECONDS = 2.0  # others may be checking the file: a check holds a free lock for an instant
LOOK_SECONDS = 0.02


class LastWill(msgspec.Struct, frozen=True, kw_only=True):
    """The death to report, and its store. ``notify``: whether the report wakes listeners. With
    ``arguments`` and ``environment`` the tether becomes this program."""

    url: str
    lock: LockIdentity
    notify: bool
    arguments: list[str]
    environment: dict[str, str]

    def __repr__(self) -> str:
        return f"<the last will of the worker with {self.lock.path}>"


def leave_will(url: str, lock: LockFile | None, *, notify: bool) -> int:
    """Return the open file of a will, or NO_WILL if it cannot be made or is useless: without a lock
    file nothing proves a death, and workers on one SQLite file see each other's."""
    if lock is None or file_of(url) is not None or not hasattr(os, "memfd_create"):
        return NO_WILL
    name = LockIdentity(
        boot_id=boot_id(), path=str(lock.path), device=lock.device, inode=lock.inode
    )
    will = LastWill(
        url=url,
        lock=name,
        notify=notify,
        arguments=[sys.executable, "-P", "-m", __name__],
        environment=dict(os.environ),
    )
    text = json.dumps(msgspec.to_builtins(will))  # json accepts values that are not UTF-8
    try:
        fd = os.memfd_create("outlast-will")
        with open(fd, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
    except OSError:
        return NO_WILL
    return fd


def read_will(text: str) -> LastWill:
    """Return the will in this text. Raises ValueError for anything else."""
    return msgspec.convert(json.loads(text), LastWill)


async def carry_out(lock: LockIdentity, store: Store, clock: Clock = SYSTEM) -> bool:
    """Report that the worker with this lock file is gone, if the file is free; return whether."""
    if not await _is_free(lock, clock):
        return False
    async with asyncio.timeout(STORE_SECONDS):
        await store.tell_gone(lock, read_begun(lock.path, lock.device, lock.inode))
    return True


async def _is_free(lock: LockIdentity, clock: Clock) -> bool:
    deadline = clock.boot() + HELD_SECONDS
    while (seen := probe(lock.path, lock.device, lock.inode)) is Probe.HELD:
        if clock.boot() >= deadline:
            return False
        await clock.sleep(LOOK_SECONDS)
    return seen is Probe.FREE


async def _speak(will: LastWill) -> None:
    store = open_store(will.url, notify=will.notify, statement_timeout=STORE_SECONDS)
    try:
        await carry_out(will.lock, store)  # not opened: that would check or create the schema
    finally:
        await store.close()


def main() -> None:
    """Carry out the will on standard input."""
    asyncio.run(_speak(read_will(sys.stdin.read())))


if __name__ == "__main__":
    main()
