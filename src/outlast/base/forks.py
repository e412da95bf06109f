"""Forks of a process that other threads of it are using, as those of a prefork server.

A child has the memory of its parent and none of its other threads: what one of them held or had
half done stays so. Hence a fork waits until it is not in the middle of what a child could not end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple

generation = 0
"""How many forks are between the process that has imported this and this one. To ask for the
process id is a system call; what belongs to one process compares this."""

importing = threading.RLock()
"""Held where a call imports modules. No thread of a child would end the import: each call there
would wait for it, or find half a module. It waits for nothing of the user's."""


class _Hooks(NamedTuple):
    before: Callable[[], None]
    in_parent: Callable[[], None]
    in_child: Callable[[], None]


_hooks: list[_Hooks] = []
_begun: list[_Hooks] = []  # of one fork


def at_fork(
    before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]
) -> None:
    """As ``os.register_at_fork``, which may call what was registered while a fork waited for an
    import after that fork, and had not called it before."""
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
