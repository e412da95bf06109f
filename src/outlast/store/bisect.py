"""One bad outcome never stops a worker: find it in its batch and end its job.

A store refuses a batch as a whole when it refuses one value in it (a NUL byte, a number out of
range). Sent again as it is, it would be refused forever, while the heartbeat keeps its jobs
alive. So the batch is halved until the culprit is alone, and that one is replaced by an end that
any store takes. Nothing of a refused batch was written, so halves can be sent on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from outlast.errors import BadData
from outlast.model.lifecycle import Transition
from outlast.store.protocol import Store
from outlast.store.values import Answer, ClaimRequest, Exchanged, WorkerRef


async def exchange_bisecting(
    store: Store,
    me: WorkerRef,
    ended: Sequence[Transition],
    requests: Sequence[ClaimRequest],
    reject: Callable[[Transition], Transition],
) -> Exchanged:
    """Exchange, with ``reject`` giving the end to write instead of one that the store refuses.

    Answers are in the order of ``ended``. After a refusal the claim requests go last and alone,
    lowered by what was busy. Raises BadData if the store refuses what ``reject`` returned, or the
    requests.
    """
    try:
        return await store.exchange(me, ended, requests)
    except BadData:
        if not ended:
            raise
    answers = await _hand_in(store, me, ended, reject)
    busy = answers.count(Answer.BUSY)
    left = [
        msgspec.structs.replace(request, limit=max(0, request.limit - busy)) for request in requests
    ]
    reply = await store.exchange(me, [], left)
    return msgspec.structs.replace(reply, answers=answers)


async def _hand_in(
    store: Store,
    me: WorkerRef,
    ended: Sequence[Transition],
    reject: Callable[[Transition], Transition],
) -> list[Answer]:
    """Hand in without requests, in halves where the store refuses."""
    try:
        return (await store.exchange(me, ended, [])).answers
    except BadData:
        if len(ended) == 1:
            return (await store.exchange(me, [reject(ended[0])], [])).answers
    middle = len(ended) // 2
    first = await _hand_in(store, me, ended[:middle], reject)
    return first + await _hand_in(store, me, ended[middle:], reject)
