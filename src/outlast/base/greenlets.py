"""Let greenlets, into which gevent turns a web server's threads, call the background event loop.

If one greenlet ran that loop, all others of its thread would seem to be inside it: asyncio and
Django would refuse to work in them. So it has a real thread, and greenlets wait through gevent.
"""

from __future__ import annotations

import sys
import threading
from typing import Any


def find_gevent() -> Any | None:
    """Return ``gevent.monkey`` if it has turned Python's threads into greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(map(monkey.is_module_patched, ("threading", "queue"))):
        return monkey
    return None


def find_greenlets() -> str | None:
    """Return who has replaced Python's threads or queues by greenlets, if so."""
    if find_gevent() is not None:
        return "gevent's monkey.patch_all() has turned Python's threads into greenlets"
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        return "eventlet's monkey_patch() has turned Python's threads into greenlets"
    return None


def start(thread: threading.Thread) -> None:
    """Start a real thread, whether threads are greenlets or not; if they are, none can join it."""
    if (monkey := find_gevent()) is None:
        thread.start()
    else:
        monkey.get_original("_thread", "start_new_thread")(thread.run, ())


class GreenletEvent:
    """An event that one greenlet waits for, once, and any thread sets. gevent's locks would not do:
    a hub that has nothing else to wait for would end the wait."""

    def __init__(self) -> None:
        from gevent import event, get_hub  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

        self._event = event.Event()
        self._watcher = get_hub().loop.async_()
        self._watcher.start(self._event.set)

    def wait(self) -> None:
        """Wait until it is set, in the greenlet that has made it."""
        try:
            self._event.wait()
        finally:
            self._watcher.stop()  # not closed: an interrupted call still sets it later

    def set(self) -> None:
        """Set it, from any thread, even if its wait was interrupted."""
        self._watcher.send()
