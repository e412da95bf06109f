"""Adds evidence to the end of an attempt, and redacts it, before the store gets it.

Texts of user code (in a report, the message of an end, progress) are redacted here, and only here.
``model/crash.py`` says how each field is edited.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

import msgspec

from outlast.base.clock import Clock
from outlast.base.config import VERSION
from outlast.base.credentials import hide_logins
from outlast.model.crash import LIMITS, Crash, Progress, bound, clean, hiding, redact
from outlast.model.job import SHELL_TASK
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.stacks import line_of, own_first
from outlast.worker.base import Running

MESSAGE_MAX = 2_000  # characters of the message of an end


class Evidence:
    """Holds where attempts of this worker run, and the secrets that their texts must not show:
    matches of the patterns ``redact`` and, by ``hide_secrets``, those of the URLs."""

    def __init__(
        self,
        clock: Clock,
        *,
        worker: str = "",
        host: str = "",
        release: str | None = None,
        redact: Sequence[str] = (),
        hide_secrets: Callable[[str], str] = hide_logins,
    ) -> None:
        self._clock = clock
        self._worker = worker
        self._host = host
        self._release = release
        self._hide_patterns = hiding(redact)
        self._hide_secrets = hide_secrets

    def hide(self, text: str) -> str:
        """Return the text without secrets and without matches of the patterns."""
        return self._hide_patterns(self._hide_secrets(text))

    def redact_progress(self, progress: Progress) -> Progress:
        """Return progress as it is stored: without secrets and without matches of the patterns."""
        stage, message = progress.stage and self.hide(progress.stage), progress.message
        return msgspec.structs.replace(
            progress, stage=stage, message=message and self.hide(message)
        )

    def add(self, running: Running, outcome: Outcome) -> Outcome:
        """Return the end as the store gets it, its report complete, bounded and redacted."""
        message = clean(self.hide(outcome.message), MESSAGE_MAX)
        outcome = msgspec.structs.replace(outcome, pid=running.pid, message=message)
        if outcome.kind is OutcomeKind.COMPLETED or outcome.crash is None:
            return outcome
        crash = self._complete(outcome.crash, running)
        was_cancelled = outcome.kind is OutcomeKind.CANCELLED  # cancelled, and had to be killed
        if running.claimed.task != SHELL_TASK and (crash.kind in LIMITS or was_cancelled):
            stacks = own_first(f"{running.stack}\n\n{crash.stacks or ''}", running.token)
            line = line_of(stacks, running.token)
            said = f"{crash.message}; it was at {line}" if line else crash.message
            crash = msgspec.structs.replace(crash, stacks=stacks or None, message=said)
        crash = bound(redact(crash, self.hide))
        message = crash.message if was_cancelled else message
        return msgspec.structs.replace(outcome, crash=crash, message=message)

    def _complete(self, crash: Crash, running: Running) -> Crash:
        age = None if running.saved_at is None else self._clock.boot() - running.saved_at
        crash = msgspec.structs.replace(
            crash,
            progress=running.progress,
            checkpoint_age_seconds=age,
            output=crash.output or running.output or [],
            worker=self._worker,
            host=self._host,
            pid=running.pid,
            release=running.release or self._release,
            python=running.python or platform.python_version(),
            outlast=VERSION,
        )
        if running.claimed.task == SHELL_TASK:  # the stacks only show Outlast's code, which waits
            return msgspec.structs.replace(crash, stacks=None)
        return crash
