"""Make forks safe in a process with several threads, such as a prefork server's.

A child has its parent's memory but only the forking thread: a lock that another thread held, or
work that it had begun, stays as it is. So a fork waits until no other thread is in the middle of
something that a child could not finish.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple

generation = 0
"""The number of forks between the process that imported this module and this one. Code whose data
belongs to one process compares this number: asking for the process id is a system call."""

importing = threading.RLock()
"""Held while a call imports modules. In a forked child no thread would finish the import, and each
call would wait for it or find half a module. Its holder never waits for user code."""


class _Hooks(NamedTuple):
    before: Callable[[], None]
    in_parent: Callable[[], None]
    in_child: Callable[[], None]


_hooks: list[_Hooks] = []
_begun: list[_Hooks] = []  # the hooks of the fork that runs


def at_fork(
    before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]
) -> None:
    """Register hooks as ``os.register_at_fork`` does. That function alone could call, after a fork,
    hooks that were registered while the fork waited for an import, and so were not called before
    it."""
    _hooks.append(_Hooks(before, in_parent, in_child))


def _before() -> None:
    importing.acquire()
    _begun[:] = _hooks
    for hooks in _begun:
        hooks.before()


def _in_parent() -> None:
    for hooks in _begun:
        hooks.in_parent()
    importing.release()


def _in_child() -> None:
    global generation
    generation += 1
    for hooks in _begun:
        hooks.in_child()
    importing.release()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
