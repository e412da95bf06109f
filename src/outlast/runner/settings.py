"""What a runner is told at its start, and the signal on which it dumps its stacks."""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec

from outlast.base.credentials import make_hider, redact
from outlast.model.crash import hiding

STACKS_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


class RunnerSettings(msgspec.Struct, frozen=True):
    """What a runner is to do, and where. It comes over the socket, not as an argument: arguments of
    a process can be read by every user of the machine, and the URLs have passwords.

    ``stacks`` and ``lock`` are inherited descriptors. ``shell``: whether commands may be run, too.
    ``redact``: patterns of what reports must not show.
    """

    app: str
    stacks: int
    concurrency: int
    store_id: str
    url: str
    lock: int | None = None
    shell: bool = False
    wakeup: str | None = None
    redact: list[str] = []

    def __repr__(self) -> str:
        return f"<settings of a runner of {self.app} for {redact(self.url)}>"

    def make_hide(self) -> Callable[[str], str]:
        """Return what takes secrets of its URLs, and what the patterns match, out of a text: before
        it is cut, since a piece of a secret is matched by nothing."""
        secrets, patterns = make_hider(self.url, self.wakeup), hiding(self.redact)
        return lambda text: patterns(secrets(text))
