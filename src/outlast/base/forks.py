"""Make forks safe in a process with several threads, such as a prefork server's.

A child has its parent's memory but only the forking thread: a lock of another thread, or work that
it had begun, stays as it is. So a fork waits until no thread is in the middle of such a thing.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # its hooks for forks must not come during one
import os
import threading
from collections.abc import Callable

generation = 0
"""How many forks separate this process from the one that imported this module. Code whose
data belongs to one process compares it: asking for the process id is a system call."""

importing = threading.RLock()
"""Held while a call imports modules, which no thread of a forked child would finish. Its holder
never waits for user code."""


_Hooks = tuple[Callable[[], None], Callable[[], None], Callable[[], None]]
_hooks: list[_Hooks] = []
_begun: list[_Hooks] = []  # the hooks of the fork that runs


def at_fork(
    before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]
) -> None:
    """Register hooks as ``os.register_at_fork`` does, which after a fork could call hooks that were
    registered while the fork waited for an import, and so were not called before it."""
    _hooks.append((before, in_parent, in_child))


def _before() -> None:
    importing.acquire()
    _begun[:] = _hooks
    for before, _, _ in _begun:
        before()


def _in_parent() -> None:
    for _, in_parent, _ in _begun:
        in_parent()
    importing.release()


def _in_child() -> None:
    global generation
    generation += 1
    for _, _, in_child in _begun:
        in_child()
    importing.release()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
