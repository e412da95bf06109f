"""Calls a task once in this process, without a store or a worker: ``outlast run-task``.

A plain function runs in the calling thread, where a debugger has the terminal and Ctrl-C arrives,
unless one of the application's hooks needs an event loop. An ``async def`` runs in a new loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from typing import Any, NamedTuple

from outlast.base.clock import SYSTEM
from outlast.client.app import App
from outlast.client.attempt import Attempt, set_batch
from outlast.client.awaiting import running
from outlast.client.batches import BatchLink, function_of_one
from outlast.client.task import Call
from outlast.model.crash import Progress
from outlast.runner.execute import entered
from outlast.store.values import Answer, Claimed, StepFound

RunLoop = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class Listener(NamedTuple):
    """Receives the progress of an attempt without a worker, and the JSON of its checkpoints."""

    on_progress: Callable[[Progress], None]
    on_checkpoint: Callable[[str], None]


class Returned(NamedTuple):
    """The return value of a call, or its exception."""

    value: Any = None
    error: BaseException | None = None


class NoWorker:
    """A ``Link`` to no worker: it passes progress and checkpoints to the listener, if any."""

    store_id = ""
    worker_id = 0

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener

    def report(self, token: int, progress: Progress) -> None:
        """Pass progress to the listener."""
        if self._listener is not None:
            self._listener.on_progress(progress)

    def save(
        self, job_id: int, token: int, number: int, value_json: str, *, again: bool
    ) -> Future[StepFound]:
        """Pass a checkpoint to the listener."""
        if self._listener is not None:
            self._listener.on_checkpoint(value_json)
        return _accepted()

    def step(self, job_id: int, token: int, name: str, value_json: str | None) -> Future[StepFound]:
        """Accept a step, and drop it."""
        return _accepted()


def _accepted() -> Future[StepFound]:
    answer: Future[StepFound] = Future()
    answer.set_result(StepFound(Answer.ACCEPTED))
    return answer


def make_attempt(
    call: Call[Any], listener: Listener | None = None, checkpoint: str | None = None
) -> Attempt:
    """Return the first attempt of a call without a job; ``checkpoint``: JSON."""
    job, link = call.job, NoWorker(listener)
    timeout = job.policy.timeout
    claimed = Claimed(
        job_id=0,
        token=0,
        task=job.task,
        queue=job.queue,
        args=job.args,
        number=1,
        failures=0,
        losses=0,
        policy=job.policy,
        tenant=job.tenant,
        checkpoint=checkpoint,
    )
    return Attempt(
        BatchLink(link) if call.task.batch else link,
        claimed,
        deadline=None if timeout is None else SYSTEM.wall() + timeout,
        returns=call.task.returns,
        saves=call.task.checkpoint,
        max_payload=call.task.signature.max_payload,
    )


def run_here(app: App, call: Call[Any], attempt: Attempt, run_loop: RunLoop) -> Returned:
    """Call the task inside the application's hooks; return the value, or the exception, of the task
    or of a hook, which cannot undo the task's. ``run_loop`` runs a coroutine if one is needed.
    KeyboardInterrupt is raised."""
    task, fn = call.task, function_of_one(call.task)
    args, kwargs = task.signature.decode(call.job.args)
    lifespan = None if app.lifespan_fn is None else app.lifespan_fn(app)
    arounds = [around(attempt) for around in app.around_fns]
    contexts = arounds if lifespan is None else [lifespan, *arounds]
    are_plain = all(isinstance(each, AbstractContextManager) for each in contexts)
    needs_loop = task.is_async or not are_plain
    value: Any = None
    failed: BaseException | None = None

    async def run() -> None:
        nonlocal value, failed
        async with AsyncExitStack() as stack:
            if lifespan is not None:
                attempt.resources = await entered(stack, lifespan)
            set_batch([attempt]) if task.batch else running.set(attempt)
            for around in arounds:
                await entered(stack, around)
            try:
                if task.is_async:
                    value = await fn(*args, **kwargs)
                elif needs_loop:
                    value = await asyncio.to_thread(fn, *args, **kwargs)
                else:
                    value = fn(*args, **kwargs)
            except BaseException as error:
                failed = error
                raise

    try:
        if needs_loop:
            run_loop(run)
        else:  # it waits for nothing, and so it ends with its first step, in this thread
            with suppress(StopIteration):
                contextvars.copy_context().run(run().send, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Returned(error=failed or error)
    return Returned(value, failed)
