"""A worker's last will: what its tether lets the store know, should the worker be killed alone.

A worker that is killed by itself (by the kernel for want of memory, or by ``kill -9``) leaves its
tether, which kills the runners, sees their sessions empty, and lets go of the lock file. From then
on that file is free: the proof of the worker's death, which only a process of this host can see.
The tether becomes this program, which looks as a reaper of this host would, and says on the
worker's row what it has found. So workers of other hosts need not wait until presence was missed
for long enough. They reap as always; the word on the row takes the place of their own look at the
file.

Nothing is said while the file is held, nor where it cannot be seen: so not of a worker that lives,
stopped or not, even if its pipe has ended, nor of one that a process of its own outlives. And
nothing is said again: where the store cannot be reached at once, presence and lease decide.

The will lies in a file that has no name and no place on a disk (``memfd_create``), open in the
worker and in its tether, which do not read it meanwhile: the store's URL, with its password, is in
no argument and no environment. This program has the worker's own environment, in which drivers find
what is not in the URL.
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
HELD_SECONDS = 2.0  # for which others may look at the file: a look holds a free lock for an instant
LOOK_SECONDS = 0.02


class LastWill(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said, where. ``notify``: whether listeners are woken by it. ``arguments`` and
    ``environment`` are for the tether, by which it becomes this program."""

    url: str
    lock: LockIdentity
    notify: bool
    arguments: list[str]
    environment: dict[str, str]

    def __repr__(self) -> str:
        return f"<the last will of the worker with {self.lock.path}>"


def leave_will(url: str, lock: LockFile | None, *, notify: bool) -> int:
    """Return the open file of a worker's last will. NO_WILL where there is nothing to say by it
    (without a lock file nothing proves a death, and workers on one file see each other's), or where
    no such file can be had."""
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
    text = json.dumps(msgspec.to_builtins(will))  # unlike msgspec's, it bears any environment
    try:
        fd = os.memfd_create("outlast-will")
        with open(fd, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
    except OSError:
        return NO_WILL
    return fd


def read_will(text: str) -> LastWill:
    """Return a will as it was left. Raises ValueError for anything else."""
    return msgspec.convert(json.loads(text), LastWill)


async def carry_out(lock: LockIdentity, store: Store, clock: Clock = SYSTEM) -> bool:
    """Say that the worker with this lock file is gone, if the file is free; return whether."""
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
        await carry_out(will.lock, store)  # not opened: that would check the schema, or make it
    finally:
        await store.close()


def main() -> None:
    """Carry out the will that is on standard input."""
    asyncio.run(_speak(read_will(sys.stdin.read())))


if __name__ == "__main__":
    main()
