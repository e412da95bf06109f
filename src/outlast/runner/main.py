"""Runs as a runner: a fresh interpreter that imports the application and runs attempts.

A runner ignores SIGINT, SIGTERM and SIGHUP: its worker controls it through the socket. It does not
outlive its worker: the kernel kills it (Linux), the end of the socket ends it, and the tether
process kills its whole group if it resists.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import platform
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn

from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import URL_VARIABLE, VERSION
from outlast.base.credentials import without_secrets
from outlast.base.greenlets import find_greenlets
from outlast.client.app import App
from outlast.client.attempt import current_token
from outlast.client.log_fields import mark_records
from outlast.errors import ApplicationError, describe, text_of
from outlast.model.crash import TEXT_MAX, CrashKind, Progress, clean
from outlast.runner import interruptions
from outlast.runner.application import load_app, refuse_greenlets
from outlast.runner.channel import Channel
from outlast.runner.execute import RECALLED, Executor, enter_lifespan
from outlast.runner.garbage import Collector, keep_what_is_loaded
from outlast.runner.outcomes import make_crashed
from outlast.runner.printing import flush_tagged, tag_output
from outlast.runner.process_state import ProcessState
from outlast.runner.protocol import (
    STACKS_SIGNAL,
    ApplicationFailed,
    AttemptsEnded,
    Began,
    End,
    FunctionsEnded,
    Hello,
    Ping,
    Pong,
    Quit,
    Recall,
    Recalled,
    Reported,
    Restored,
    Run,
    RunnerSettings,
    ShowStack,
    StackAtLimit,
    StackShown,
    Stop,
    TaskInfo,
    ToRunner,
)
from outlast.runner.shell import task as shell
from outlast.runner.tether import die_with_parent
from outlast.runner.ticks import Ticks
from outlast.store.limits import CodeLimits, DeclaredTask
from outlast.store.values import StepFound

ENDED_BY_A_TASK = "outlast: a task has stopped the event loop of its runner\n"
BROKEN = 3  # exit code of a runner that could not start or continue
LEAVE_SECONDS = 3.0  # for a lifespan that was cancelled
LIFESPAN_FAILED = "the application's lifespan has failed"
LEFT_BADLY = f"outlast: {LIFESPAN_FAILED} at its end"
_NOTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # a runner ends when its worker says so
_forking = threading.local()  # mask: the signals that this thread blocked before its fork
SWITCH_SECONDS = 0.001  # a runner's own thread must not wait long for the GIL


class WorkerLink:
    """The link of attempts to their worker, over the channel."""

    def __init__(self, channel: Channel, settings: RunnerSettings, clock: Clock) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._ends: list[End] = []
        self._serving = asyncio.current_task()
        self._closed = False
        self._collector = Collector(self._loop)
        self.ticks = Ticks(clock)
        self.store_id = settings.store_id
        self.worker_id = 0
        self.hide = settings.make_hide()

    def report(self, token: int, progress: Progress) -> None:
        """Send the progress of an attempt to the worker."""
        self._channel.send(Reported(token, progress))

    def save(
        self, job_id: int, token: int, number: int, value_json: str, *, again: bool
    ) -> Future[StepFound]:
        """Save a checkpoint."""
        return self._channel.save(token, number, value_json, again=again)

    def step(self, job_id: int, token: int, name: str, value_json: str | None) -> Future[StepFound]:
        """Keep a step, or look for it."""
        return self._channel.step(token, name, value_json)

    def report_end(self, end: End, *, is_last: bool = False) -> None:
        """Tell the worker that an attempt ended, with others of the same iteration of the loop."""
        if not self._tells_ends():
            return
        self._ends.append(end)
        if is_last:
            self.send_ends()
        elif len(self._ends) == 1:
            self._loop.call_soon(self.send_ends)

    def close(self) -> None:
        """Report no more ends: the worker sees them by the death of this process."""
        self._closed = True

    @property
    def is_cancelled(self) -> bool:
        """Whether the serving task is cancelled, and the cancellation was not taken back."""
        return self._serving is not None and self._serving.cancelling() > 0

    def _tells_ends(self) -> bool:
        """Whether ends are reported: not once the serving task is cancelled, since the ends of
        attempts, which are cancelled with it, in no fixed order, would look like their own doing. A
        lifespan with a task group takes the cancellation back."""
        return not (self._closed or self.is_cancelled)

    def send(self, frame: Began | FunctionsEnded | StackAtLimit) -> None:
        """Tell the worker about running attempts."""
        if isinstance(frame, Began):  # with a limit
            self.ticks.start()
        self._channel.send(frame)

    def send_ends(self) -> bool:
        """Send the reported ends; return whether ends are reported at all."""
        ends, self._ends = self._ends, []
        if ends:  # otherwise an earlier call has sent them
            self._collector.note_end()
            flush_tagged()
            try:
                self._channel.send(AttemptsEnded(ends))
            except Exception:  # any error: an unreported end holds its job forever
                for end in ends:
                    self._send_alone(end)
        return self._tells_ends()

    def _send_alone(self, end: End) -> None:
        try:
            self._channel.send(AttemptsEnded([end]))
        except Exception as error:
            outcome = make_crashed(
                CrashKind.REJECTED_RESULT, f"its end cannot be reported: {text_of(error)}"
            )
            self._channel.send(AttemptsEnded([End(end.token, outcome)]))


class Runner:
    """Obeys the worker's frames until it receives ``Quit``."""

    def __init__(
        self, app: App, settings: RunnerSettings, channel: Channel, clock: Clock = SYSTEM
    ) -> None:
        self._app = app
        self._clock = clock  # on one host, so its boot clock is also the worker's
        self._settings = settings
        self._channel = channel
        self._quit = asyncio.Event()
        self._spoiled = False  # whether a task has changed what cannot be restored
        self._broken_off = False  # whether the serving task was cancelled
        self._loop = asyncio.get_running_loop()
        self._link = WorkerLink(channel, settings, clock)

    async def run(self) -> None:
        """Enter the application's lifespan, announce its tasks, and serve."""
        failure: BaseException | None = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                self._start(await enter_lifespan(self._app, stack))
                await asyncio.sleep(0)  # if a lifespan has cancelled this task, it fails here
                self._channel.start(self._on_frame)
                self._channel.send(announcement(self._app))
                await self._until_quit()
        except BaseException as error:
            if not self._broken_off:
                raise
            failure = error
        if self._broken_off:
            if failure is None and not self._link.is_cancelled:  # a group has taken it back
                failure = RuntimeError("it ended, and swallowed why")
            self._tell_broken_off(failure)

    def _start(self, resources: Any) -> None:
        self._executor = Executor(
            self._app,
            self._link,
            resources,
            clock=self._clock,
            threads=self._settings.concurrency,
            on_idle=self._restore,
        )
        self._state = ProcessState(self._settings.stacks)
        keep_what_is_loaded()

    async def _until_quit(self) -> None:
        try:
            await self._quit.wait()
        except BaseException as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # user code re-enabled SIGINT
                _die_of(signal.SIGINT)
            self._broken_off = True
            self._link.close()
            late = TimeoutError(f"it was cancelled, and did not end within {LEAVE_SECONDS:g} s")
            known = None if self._app.lifespan_fn is None else late
            leaving = threading.Timer(LEAVE_SECONDS, self._tell_broken_off, (known,))
            leaving.daemon = True
            leaving.start()
            raise

    def _tell_broken_off(self, failure: BaseException | None) -> NoReturn:
        """Exit, and say why this task was cancelled: a lifespan with a task group or a timeout
        raises another error; otherwise user code has stopped the loop, or cancelled all tasks."""
        if failure is None or isinstance(failure, asyncio.CancelledError):
            _exit(BROKEN, ENDED_BY_A_TASK)
        hide = self._settings.make_hide()
        message = clean(hide(f"{LIFESPAN_FAILED}: {describe(failure)}"))
        stack = _own_traceback(failure, hide)
        with contextlib.suppress(Exception):
            sys.stderr.write(f"outlast: {message}\n{stack}")
            sys.stderr.flush()
        self._channel.send(ApplicationFailed(message, stack))
        _exit(BROKEN)

    def _restore(self, token: int, others: int, in_loop: bool) -> None:  # noqa: FBT001
        """Undo and report the changes of tasks to this process, before anything else runs here."""
        changes = self._state.restore(signals=in_loop)
        self._spoiled |= self._state.is_spoiled
        if not self._spoiled and (greenlets := find_greenlets()) is not None:
            self._spoiled = True
            changes.append(greenlets)
        if changes:
            self._channel.send(Restored(token, others, changes, self._spoiled))

    def _on_frame(self, frame: ToRunner) -> None:
        """Pass a frame on to the loop. Attempts that have not begun are taken back at once, even
        while it is blocked."""
        if isinstance(frame, Run):
            tokens = [claimed.token for claimed in frame.attempts]
            self._executor.expect(tokens)
            if self._spoiled:
                self._recall(tokens)
                return
        elif isinstance(frame, Stop):
            self._recall([frame.token])
        elif isinstance(frame, Recall):
            self._recall(frame.tokens)
            return
        self._loop.call_soon_threadsafe(self._obey, frame)

    def _recall(self, tokens: list[int]) -> None:
        if recalled := self._executor.recall(tokens):
            self._channel.send(AttemptsEnded([End(token, RECALLED) for token in recalled]))
        self._channel.send(Recalled(tokens))

    def _obey(self, frame: ToRunner) -> None:
        if isinstance(frame, Run):
            self._link.worker_id = frame.worker_id
            self._executor.start(frame.attempts)
        elif isinstance(frame, Stop):
            self._executor.stop(frame.token, frame.reason)
        elif isinstance(frame, Ping):
            self._channel.send(Pong(frame.seq, self._link.ticks.take()))
        elif isinstance(frame, ShowStack):
            self._channel.send(StackShown(frame.token, self._executor.find_stack(frame.token)))
        elif isinstance(frame, Quit):
            self._quit.set()


def announcement(app: App) -> Hello:
    """Return the frame that announces the tasks, schedules and limits of this application."""
    infos = [
        TaskInfo(name, task.own_runner, sorted(task.requires), task.uses, task.batch)
        for task in app.tasks.values()
        for name in (task.name, *task.aliases)
    ]
    schedules = list(app.schedules.declared.values())
    return Hello(
        infos,
        os.environ.get("OUTLAST_RELEASE"),
        platform.python_version(),
        schedules,
        _limits_of(app),
    )


def _limits_of(app: App) -> CodeLimits:
    tasks = [
        DeclaredTask(
            name,
            tuple(limit.name for limit in task.limits),
            task.fair is not None,
            task.aging,
            task._placement.priority,  # noqa: SLF001
        )
        for task in app.tasks.values()
        for name in (task.name, *task.aliases)
    ]
    return CodeLimits(app.limits._news(), tasks)  # noqa: SLF001


def join_worker(app: App, settings: RunnerSettings) -> None:
    """Let tasks enqueue into the store of their worker, and no other one, as in the database of a
    $PGDATABASE that a task has set: no worker would look there."""
    if app.url != settings.url:
        app.url = settings.url
    app.stores.wakeup = settings.wakeup or app.stores.wakeup
    app.stores.only = settings.store_id
    # for programs that tasks start: they would find the default store. No secret is passed on
    os.environ.setdefault(URL_VARIABLE, without_secrets(settings.url))


def main(descriptor: int) -> int:
    """Run as a runner, on this inherited end of a socket; return the exit code."""
    _hold_to_worker()
    os.set_inheritable(descriptor, False)
    channel = Channel(socket.socket(fileno=descriptor))
    settings = channel.read_settings()
    _prepare(settings)
    try:
        if settings.version != VERSION:  # each understands its own frames
            told = f"Outlast {VERSION} is installed, and this worker runs {settings.version}"
            raise ApplicationError(f"{told}: restart it")
        app = load_app(settings.app)
        faulthandler.enable(file=settings.stacks)  # which the application may have taken, or ended
        refuse_greenlets()
        if settings.shell:
            shell.add_to(app)
        join_worker(app, settings)
        asyncio.run(_run(app, settings, channel))
    except BaseException as error:
        hide = settings.make_hide()
        if channel.started:
            _exit(BROKEN, f"{LEFT_BADLY}: {hide(describe(error))}\n{_own_traceback(error, hide)}")
        is_ours = isinstance(error, ApplicationError)
        message = text_of(error) if is_ours else f"the application cannot start: {describe(error)}"
        channel.send(ApplicationFailed(clean(hide(message)), _own_traceback(error, hide)))
        _exit(BROKEN)
    return 0


def _exit(code: int, words: str = "") -> NoReturn:
    """Exit now: threads of the application could make a normal exit wait forever."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        sys.stderr.write(words)
        sys.stderr.flush()
    os._exit(code)


def _die_of(number: signal.Signals) -> None:
    """Die of the signal, as an interrupted program does, so that the parent can see it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


async def _run(app: App, settings: RunnerSettings, channel: Channel) -> None:
    await Runner(app, settings, channel).run()


def _hold_to_worker() -> None:
    """Die with the worker, and ignore other requests to end."""
    die_with_parent()
    for number in _NOTED:
        # a handler, not SIG_IGN: children start with the default
        signal.signal(number, interruptions.note)
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_release_signals, after_in_child=_obey_signals
    )


def _hold_signals() -> None:
    """Block signals from a fork to the child's first statements: they would be counted and lost."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _NOTED)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _obey_signals() -> None:
    """In a forked child, end by signals, as pools of multiprocessing expect: do not count."""
    for number in _NOTED:
        if signal.getsignal(number) is interruptions.note:
            signal.signal(number, signal.SIG_DFL)
    _release_signals()


def _prepare(settings: RunnerSettings) -> None:
    if (own := os.environ.pop("OUTLAST_PYTHONPATH", None)) is not None:  # as it was given to us
        os.environ["PYTHONPATH"] = own
    for fd in (settings.stacks, settings.lock):
        if fd is not None:
            os.set_inheritable(fd, False)
    faulthandler.enable(file=settings.stacks, all_threads=True)
    faulthandler.register(STACKS_SIGNAL, file=settings.stacks, all_threads=True)
    sys.setswitchinterval(SWITCH_SECONDS)
    tag_output(current_token)
    mark_records()


def _own_traceback(error: BaseException, hide: Callable[[str], str]) -> str:
    cause = error.__cause__ if isinstance(error, ApplicationError) else error
    if cause is None or isinstance(cause, ModuleNotFoundError):
        return ""
    return clean(hide("".join(traceback.format_exception(cause))), TEXT_MAX)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
