"""``outlast run-task``: run one call of a task here and now, for its author and a debugger."""

from __future__ import annotations

import pdb  # noqa: T100  # for --pdb
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

from outlast.base.text import line, safe
from outlast.cli.connect import closing
from outlast.cli.errors import Failed, say
from outlast.cli.jobs import CalledTask, check_json
from outlast.cli.loop import run_loop
from outlast.cli.options import AppUrl, LimitKeys, Owner, flag, option, read_limit_flags
from outlast.errors import BadArguments, text_of
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.payload.codec import encode_return

if TYPE_CHECKING:
    from outlast.client.app import App
    from outlast.client.attempt import Attempt
    from outlast.client.task import Call
    from outlast.model.crash import Progress
    from outlast.runner.here import Returned, RunLoop

SHOWN_MAX = 200  # characters of a checkpoint
_CALLER = "outlast/runner/here.py"


def run_task(
    called: CalledTask,
    *,
    checkpoint: Annotated[
        str | None, option("--checkpoint", "JSON", "Start from this checkpoint.")
    ] = None,
    tenant: Owner = None,
    limit_key: LimitKeys = None,
    debug: Annotated[bool, flag("--pdb", "Debug the exception that it raises.")] = False,
    url: AppUrl = None,
) -> None:
    """Run one call of a task here and now, without a queue.

    The arguments are written as for `outlast enqueue`, and checked in the same way. The task runs
    in this process, inside the hooks of the application: breakpoint() works, and so does
    outlast.current(), whose reports and checkpoints are shown on stderr, and not stored. No limit
    is enforced and nothing is retried. The result is printed as JSON, as the last line.

    No job is made and no store is opened, unless the task itself uses one: jobs that it enqueues go
    to the application's store, or to --url. All its other effects are real, too.

    The exit code is 0 if the task returns, and 1 if it raises, with its traceback and what a worker
    would do then.

    Examples:
        outlast run-task shop.jobs:app mail '"ada@example.org"'
        outlast run-task shop.jobs:app render '"Emma"' pages=30 --checkpoint '{"page": 7}'
        outlast run-task shop.jobs:app render '["Emma", 30]' --pdb
        outlast run-task shop.jobs:app sync --tenant acme
    """
    from outlast.runner.here import Listener, make_attempt, run_here

    application, found, positional, named = called.find(url)
    keys = read_limit_flags(limit_key, None)
    call = found.using(tenant=tenant, **keys).call(*positional, **named)
    saved = None if checkpoint is None else check_json(checkpoint)
    attempt = make_attempt(call, Listener(_show_progress, _show_checkpoint), saved)
    try:
        returned = run_here(application, call, attempt, _closing_loop(application))
    finally:
        application.close_sync()
    _tell(call, attempt, returned, debug=debug)


def _closing_loop(app: App) -> RunLoop:
    async def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with closing(app):
            await main()

    return lambda main: run_loop(lambda: run(main))


def _show_progress(progress: Progress) -> None:
    parts = [None if progress.fraction is None else f"{progress.fraction:.0%}"]
    parts += [progress.stage, progress.message]
    if told := " ".join(line(each, SHOWN_MAX) for each in parts if each):
        print(f"report: {told}", file=sys.stderr, flush=True)


def _show_checkpoint(value: str) -> None:
    print(f"save: {line(value, SHOWN_MAX)}", file=sys.stderr, flush=True)


# -- how it has ended


def _tell(call: Call[Any], attempt: Attempt, returned: Returned, *, debug: bool) -> None:
    if returned.error is not None:
        _tell_raised(call, attempt, returned.error, debug=debug)
        return
    try:
        result, misfit = encode_return(returned.value, attempt.returns, attempt.max_payload)
    except BadArguments as error:
        raise Failed(text_of(error)) from error
    if misfit:
        say(f"its result does not fit what the task says that it returns: {misfit}")
    sys.stderr.flush()
    print(result)


def _tell_raised(call: Call[Any], attempt: Attempt, error: BaseException, *, debug: bool) -> None:
    from outlast.runner.outcomes import judge

    error.__traceback__ = _of_the_task(error.__traceback__)
    outcome = judge(error, attempt, call.task._error_rules)  # noqa: SLF001
    crash = outcome.crash
    if crash is not None and crash.traceback:
        print(safe(crash.traceback).rstrip(), file=sys.stderr)
    if debug and error.__traceback__ is not None:
        pdb.post_mortem(error.__traceback__)
    raise Failed(_describe(outcome, attempt))


def _of_the_task(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback below the last frame of the module that has called the task."""
    cut, here = trace, trace
    while here is not None:
        if here.tb_frame.f_code.co_filename.endswith(_CALLER) and here.tb_next is not None:
            cut = here.tb_next
        here = here.tb_next
    return cut


def _describe(outcome: Outcome, attempt: Attempt) -> str:
    """Return what a worker would do with the job of a first attempt that ends like this."""
    said = outcome.message or ("" if outcome.crash is None else outcome.crash.message)
    if outcome.kind is OutcomeKind.SNOOZED:
        return f"it wants to run again in {outcome.delay:g} s (Snooze)"
    if outcome.kind is OutcomeKind.CANCELLED:
        return f"it cancels its job: {said}"
    if outcome.kind is OutcomeKind.DEAD or attempt.is_last_try:
        return f"{said}\na worker would not try it again: the job would be dead"
    pause = "" if outcome.delay is None else f" in {outcome.delay:g} s"
    return f"{said}\na worker would try it again{pause}"
