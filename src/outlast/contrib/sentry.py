"""Report errors to Sentry: a scope for each attempt, and reports for processes that died.

Call ``instrument(app)`` where the application is made, and ``watch_deaths()`` in the worker's own
process (``outlast worker --setup``). In both, the program itself calls ``sentry_sdk.init(…)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from outlast.client.app import App
from outlast.client.attempt import Attempt
from outlast.errors import ConfigError, Dead, Stopped, Verdict
from outlast.model.crash import Crash, CrashKind
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.worker import foreign_ends
from outlast.worker.foreign_ends import ForeignEnd

try:
    import sentry_sdk
    from sentry_sdk.serializer import serialize
except ImportError as error:
    raise ConfigError(
        "outlast.contrib.sentry needs Sentry's SDK: pip install 'outlast[sentry]'"
    ) from error

UNCHARGED = frozenset({CrashKind.BYSTANDER, CrashKind.LOST_LEASE, CrashKind.LOST_WORKER})
_KEPT = {"event_id", "timestamp", "start_timestamp", "_meta"}  # of an event, unchanged
OUTPUT_LINES = 20  # of a crash report that are sent along


def instrument(app: App, *, ignore: Sequence[type[BaseException]] = ()) -> None:
    """Report the exceptions of this application's tasks, each attempt in its own scope.

    Call it once for each application. Verdicts (``Retry``, ``Snooze``, ``Cancel``) are not errors;
    ``Dead`` is. An attempt that failed without raising, such as one that obeyed its timeout or
    whose result cannot be stored, is reported as a message.

    Args:
        app: the application.
        ignore: exceptions that are not reported.
    """
    reporter = _Reporter((*ignore,))
    app.around_fns.insert(0, contextlib.asynccontextmanager(reporter.around))
    app._end_fns.append(reporter.end)  # noqa: SLF001


def watch_deaths() -> Callable[[], None]:
    """Report each attempt that this process, a worker, ends on behalf of a dead process: its
    runner, or another worker. Return a function that stops this. Call it in the function that
    ``outlast worker --setup`` names.

    The report has the worker's evidence: signal or exit code, memory, the stacks and the last lines
    of output, redacted as in the store.
    """
    return foreign_ends.listen(_report_death)


class _Reporter:
    def __init__(self, ignore: tuple[type[BaseException], ...]) -> None:
        self._ignore = ignore
        self._reported: set[int] = set()  # tokens whose end needs no message

    async def around(self, attempt: Attempt) -> AsyncIterator[None]:
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_transaction_name(attempt.task, source="task")
            _describe(scope, _facts_of(attempt), attempt.task)
            scope.add_event_processor(_redactor(attempt._hide))  # noqa: SLF001
            try:
                yield
            except BaseException as error:
                self._report(error, attempt)
                raise

    def _report(self, error: BaseException, attempt: Attempt) -> None:
        """Report an error, unless the attempt obeys a request to stop: then its end decides."""
        if attempt._stop_reason is not None:  # noqa: SLF001
            return
        self._reported.add(attempt.token)
        is_verdict = isinstance(error, Verdict | Stopped) and not isinstance(error, Dead)
        if not (is_verdict or isinstance(error, self._ignore)):
            sentry_sdk.capture_exception(error)

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Report a failure without an exception, or an interruption."""
        if attempt.token in self._reported:
            self._reported.discard(attempt.token)
            return
        if outcome.kind is OutcomeKind.CRASHED and outcome.crash is not None:
            facts = _facts_of(attempt)
            _send(outcome.crash, outcome.crash.kind.value, attempt.task, facts)


def _redactor(hide: Callable[[str], str]) -> Callable[[Any, Any], Any]:
    """Return a function that redacts an event, like reports in the store, before it is cut."""

    def redact(shown: Any) -> Any:
        if isinstance(shown, dict):
            return {redact(key): redact(one) for key, one in shown.items()}
        if isinstance(shown, list):
            return [redact(one) for one in shown]
        if shown is None or isinstance(shown, bool) or hide(str(shown)) == str(shown):
            return shown
        return hide(str(shown))

    def redact_part(part: Any) -> Any:
        """Return a part unchanged, or, if it has something to redact, in Sentry's form (bytes, sets
        and objects are text there)."""
        represent = sentry_sdk.get_client().options.get("custom_repr")
        shown = serialize(part, custom_repr=represent)
        redacted = redact(shown)
        return part if redacted == shown else redacted

    def process(event: Any, _: Any) -> Any:
        return {name: one if name in _KEPT else redact_part(one) for name, one in event.items()}

    return process


def _facts_of(attempt: Attempt) -> dict[str, Any]:
    return {
        "job_id": attempt.job_id,
        "token": attempt.token,
        "attempt": attempt.number,
        "failures": attempt.failures,
        "queue": attempt.queue,
        "is_last_try": attempt.is_last_try,
    }


def _describe(scope: sentry_sdk.Scope, facts: dict[str, Any], task: str) -> None:
    scope.set_tag("outlast.task", task)
    scope.set_tag("outlast.queue", facts["queue"])
    scope.set_tag("outlast.job_id", str(facts["job_id"]))
    scope.set_context("outlast", facts)


def _report_death(ended: ForeignEnd) -> None:
    if ended.crash is None or not ended.has_failed:  # cancelled, or ended by a drain
        return
    facts = {
        "job_id": ended.job_id,
        "token": ended.token,
        "attempt": ended.number,
        "queue": ended.queue,
        "seconds": ended.seconds,
        "is_dead": ended.is_dead,
    }
    _send(ended.crash, ended.outcome, ended.task, facts)


def _send(crash: Crash, kind: str, task: str, facts: dict[str, Any]) -> None:
    """Send a report grouped by task and kind, since it has no exception's stack to group by."""
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_transaction_name(task, source="task")
        _describe(scope, facts, task)
        scope.set_tag("outlast.outcome", kind)
        scope.set_context("outlast crash", _evidence(crash))
        first_line = crash.message.partition("\n")[0]
        event: Any = {
            "level": "warning" if crash.kind in UNCHARGED else "error",
            "logger": "outlast",
            "message": f"{task}: {first_line}",
            "fingerprint": ["outlast", task, kind],
        }
        sentry_sdk.capture_event(event)


def _evidence(crash: Crash) -> dict[str, Any]:
    found = {
        "kind": crash.kind.value,
        "signal": crash.signal,
        "exit_code": crash.exit_code,
        "rss_peak_bytes": crash.rss_peak_bytes,
        "cpu_seconds": crash.cpu_seconds,
        "worker": crash.worker,
        "host": crash.host,
        "release": crash.release,
        "stacks": crash.stacks,
        "traceback": crash.traceback,
        "output": "\n".join(crash.output[-OUTPUT_LINES:]) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
