"""Call a task here and now, without a store, to test only what the function does.

Arguments and result are encoded as JSON and decoded by the annotations, as by a worker, so that the
test shows what is lost on the way.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, TypeVar

from outlast.base.sync import loop_is_running
from outlast.client.attempt import set_batch
from outlast.client.awaiting import running
from outlast.client.batches import function_of_one
from outlast.client.task import Call
from outlast.errors import SyncInLoop
from outlast.payload.codec import decode_result, encode_result, to_json
from outlast.runner.here import make_attempt

R = TypeVar("R")


async def inline(call: Call[R], *, checkpoint: Any = None, resources: Any = None) -> R:
    """Run ``task.call(…)`` in its own attempt; return the task's result.

    The task's exceptions are raised here. There is no store: nothing is retried, no hooks run,
    ``save`` and ``report`` store nothing, and ``complete_in`` raises UsageError.

    Args:
        call: such as ``render.call("Emma", pages=30)``.
        checkpoint: the value of ``attempt.checkpoint``, as if an earlier attempt had saved it.
        resources: the value of ``attempt.resources``, as if the lifespan had yielded it.
    """
    run = _prepare(call, checkpoint, resources)
    if call.task.is_async:
        return _result(call, await asyncio.create_task(run()))
    return _result(call, await asyncio.to_thread(run))


def inline_sync(call: Call[R], *, checkpoint: Any = None, resources: Any = None) -> R:
    """As ``inline``, for plain tests: an ``async def`` runs in its own event loop."""
    if loop_is_running():
        raise SyncInLoop("inline_sync() would block the event loop that runs here: await inline()")
    run = _prepare(call, checkpoint, resources)
    if call.task.is_async:
        return _result(call, asyncio.run(run()))
    return _result(call, contextvars.copy_context().run(run))


def _prepare(call: Call[Any], checkpoint: Any, resources: Any) -> Any:
    task, fn = call.task, function_of_one(call.task)
    args, kwargs = task.signature.decode(call.job.args)
    saved = None if checkpoint is None else to_json("the checkpoint", checkpoint).decode()
    attempt = make_attempt(call, checkpoint=saved)
    attempt.resources = resources

    def enter() -> None:
        set_batch([attempt]) if task.batch else running.set(attempt)

    def in_thread() -> Any:
        enter()
        return fn(*args, **kwargs)

    async def in_loop() -> Any:
        enter()
        return await fn(*args, **kwargs)

    return in_loop if task.is_async else in_thread


def _result(call: Call[R], value: Any) -> R:
    payloads = call.task.stores.payloads
    text = encode_result(value, call.task.returns, payloads=payloads)
    result: R = decode_result(text, call.task.returns, payloads)
    return result
