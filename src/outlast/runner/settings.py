"""Defines the settings that a runner receives at its start, and its signal to dump its stacks."""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec

from outlast.base.credentials import make_hider, redact
from outlast.model.crash import hiding

STACKS_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


class RunnerSettings(msgspec.Struct, frozen=True):
    """The settings of a runner. They come over the socket, not as arguments: every user of the
    machine can read the arguments of a process, and the URLs contain passwords.

    ``stacks`` and ``lock`` are inherited descriptors. ``shell``: whether commands may be run, too.
    ``redact``: patterns of text that reports must not show.
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
        """Return a function that removes the secrets of the URLs, and all matches of the patterns,
        from a text. Call it before the text is cut: no pattern matches a piece of a secret."""
        secrets, patterns = make_hider(self.url, self.wakeup), hiding(self.redact)
        return lambda text: patterns(secrets(text))
