"""What a runner is told at its birth, and the signal on which it shows its stacks."""

from __future__ import annotations

import signal

import msgspec

STACKS_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


class RunnerSettings(msgspec.Struct, frozen=True):
    """One JSON argument. ``socket``, ``stacks`` and ``lock`` are inherited descriptors. ``shell``:
    whether commands may be run, too."""

    app: str
    socket: int
    stacks: int
    concurrency: int
    store_id: str
    url: str
    lock: int | None = None
    shell: bool = False
    wakeup: str | None = None
