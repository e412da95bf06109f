"""``retry_on``, ``dead_on`` and ``backoff``: what becomes of an attempt that raises."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import outlast
from outlast.client.attempt import StopReason
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import Outcome, OutcomeKind
from tests.cases import each_case
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import Bench, as_task, kind_of, raiser

bench = execute_kit.bench
CRASHED, DEAD = OutcomeKind.CRASHED, OutcomeKind.DEAD


class Busy(OSError):
    retry_after = 7


class Odd(FileNotFoundError):
    pass


async def end_of(bench: Bench, error: BaseException, *, plain: bool = False, **options) -> Outcome:
    """How an attempt ends whose task has these options and raises this."""
    return await bench.outcome(raiser(bench, error, plain=plain, **options))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("error", "options", "kind", "says"),
    [
        (OSError("x"), {"retry_on": (OSError,)}, CRASHED, ""),
        (Busy("x"), {"retry_on": OSError}, CRASHED, ""),
        (ValueError("x"), {"retry_on": [OSError]}, DEAD, "retry_on does not name ValueError"),
        (ValueError("x"), {"retry_on": ()}, DEAD, "retry_on does not name ValueError"),
        (ValueError("x"), {"dead_on": {ValueError}}, DEAD, "dead_on names ValueError"),
        (UnicodeError("x"), {"dead_on": ValueError}, DEAD, "dead_on names ValueError"),
        (OSError("x"), {"dead_on": (ValueError,)}, CRASHED, ""),
        (KeyError("x"), {"retry_on": OSError, "dead_on": ValueError}, DEAD, "does not name Key"),
        (Odd("x"), {"retry_on": OSError, "dead_on": FileNotFoundError}, DEAD, "names FileNotF"),
        (Busy("x"), {"retry_on": OSError, "dead_on": FileNotFoundError}, CRASHED, ""),
        (Odd("x"), {"retry_on": FileNotFoundError, "dead_on": OSError}, CRASHED, ""),
        (Busy("x"), {"retry_on": FileNotFoundError, "dead_on": OSError}, DEAD, "names OSError"),
    ],
)
async def test_the_class_nearest_to_the_error_decides(bench, error, options, kind, says, plain):
    outcome = await end_of(bench, error, plain=plain, **options)
    assert (outcome.kind, kind_of(outcome)) == (kind, CrashKind.ERROR)
    assert says in outcome.message
    assert outcome.crash is not None
    assert outcome.crash.exception == type(error).__qualname__


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), asyncio.CancelledError(), outlast.StoreUnavailable("away"), outlast.Retry()],
)
async def test_what_is_no_error_of_the_task_s_own_is_tried_again(bench, error):
    assert (await end_of(bench, error, retry_on=OSError)).kind is CRASHED


async def test_unless_dead_on_names_it(bench):
    assert (await end_of(bench, SystemExit(1), dead_on=SystemExit)).kind is DEAD


@pytest.mark.parametrize(
    ("inner", "kind"),
    [((OSError(), Busy()), CRASHED), ((OSError(), ValueError()), DEAD)],
)
async def test_a_group_is_worth_an_attempt_if_all_in_it_are(bench, inner, kind):
    group = ExceptionGroup("some", [inner[0], ExceptionGroup("more", [inner[1]])])
    assert (await end_of(bench, group, retry_on=OSError)).kind is kind


async def test_the_cause_of_an_error_does_not_count(bench):
    error = ValueError("x")
    error.__cause__ = OSError("why")
    assert (await end_of(bench, error, retry_on=OSError)).kind is DEAD


@pytest.mark.parametrize("plain", [False, True])
async def test_an_error_of_what_runs_around_an_attempt_counts(bench, plain):
    @bench.app.around
    def wraps(attempt):
        yield
        raise ValueError("at the end")

    def works() -> None:
        """Return normally."""

    task = as_task(bench, works, plain=plain, dead_on=ValueError)
    assert (await bench.outcome(task)).kind is DEAD


async def test_an_attempt_that_was_asked_to_stop_is_judged_by_that(bench):
    begun = asyncio.Event()

    @bench.app.task(dead_on=ValueError)
    async def raises_at_the_end() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in its clean-up")

    bench.start(raises_at_the_end)
    await begun.wait()
    bench.executor.stop(1, StopReason.DRAIN)
    assert (await bench.end()).outcome.kind is OutcomeKind.RELEASED


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (5, [5.0, 5.0, 5.0]),
        (timedelta(minutes=1), [60.0, 60.0, 60.0]),
        ([1, timedelta(seconds=2)], [1.0, 2.0, 2.0]),
        (lambda error, failures: error.retry_after * failures, [7.0, 14.0, 21.0]),
        (lambda error, failures: None, [None, None, None]),
    ],
)
async def test_backoff_sets_the_pause_of_each_failure(bench, backoff, pauses):
    @bench.app.task(backoff=backoff)
    async def raises() -> None:
        raise Busy("later")

    ends = [await bench.outcome(raises, failures=failures) for failures in range(3)]
    assert [end.delay for end in ends] == pauses
    assert {end.kind for end in ends} == {CRASHED}


@pytest.mark.parametrize("backoff", [lambda *_: 1 / 0, lambda *_: "soon", lambda *_: -1])
async def test_a_backoff_that_fails_leaves_the_usual_pause(bench, backoff):
    outcome = await end_of(bench, OSError("x"), backoff=backoff)
    assert (outcome.kind, outcome.delay) == (CRASHED, None)
    assert outcome.crash is not None
    assert "its backoff failed: " in outcome.crash.message


async def test_a_retry_s_own_wish_counts_more_than_backoff(bench):
    assert (await end_of(bench, outlast.Retry(after=3), backoff=9)).delay == 3.0


async def test_a_retry_without_a_wish_takes_backoff(bench):
    assert (await end_of(bench, outlast.Retry(), backoff=9)).delay == 9.0


@each_case(
    ("options", "says"),
    [
        ({"retry_on": "OSError"}, "retry_on must be classes of exceptions"),
        ({"retry_on": (OSError("x"),)}, "not OSError('x')"),
        ({"dead_on": (int,)}, "not <class 'int'>"),
        ({"dead_on": 3}, "dead_on must be classes"),
        ({"dead_on": outlast.Retry}, "leave out Retry"),
        ({"retry_on": ExceptionGroup}, "name the errors in a group"),
        ({"retry_on": OSError, "dead_on": OSError}, "both name OSError"),
        ({"backoff": []}, "at least one pause"),
        ({"backoff": "soon"}, "backoff must be seconds"),
        ({"backoff": [-1]}, "backoff must be seconds from 0"),
        ({"backoff": 1, "backoff_first": 1}, "not both"),
    ],
)
def test_what_cannot_work_is_refused(options, says):
    app = outlast.App("sqlite:///never-opened.db")
    with pytest.raises(outlast.ConfigError) as caught:
        app.task(name="t", **options)(lambda: None)
    assert says in str(caught.value)
