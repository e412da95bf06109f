"""Lets an attempt use the store of its application: the one door for children and events.

A runner has its own connection there. While the store is away, its calls wait for it, as saves do:
an outage is not a failure of the attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from outlast.base.sync import hop
from outlast.errors import LostLease, StoreUnavailable, UsageError
from outlast.payload.codec import to_json
from outlast.store.values import NamedStep, StepFound

if TYPE_CHECKING:
    from outlast.client.attempt import Attempt
    from outlast.client.stores import StoreProvider
    from outlast.store.protocol import Store

R = TypeVar("R")

PATIENCE_SECONDS = 300.0  # for a store that only this process cannot reach: the lease goes on then
PAUSE_SECONDS = 0.5


class AttemptStore:
    """The store of an attempt's application, with the steps that the attempt keeps there."""

    def __init__(self, attempt: Attempt, stores: StoreProvider) -> None:
        self.job_id = attempt.job_id
        self.stores = stores
        self.payloads = stores.payloads
        self.clock = attempt._clock  # noqa: SLF001
        self.wait = attempt._wait  # noqa: SLF001
        self._attempt = attempt
        self._may_be_kept = attempt.number > 1

    def begin(self, *names: str) -> None:
        """Take the names of steps. UsageError for one that was used in this attempt."""
        for name in names:
            self._attempt._begin_step(name, to_json)  # noqa: SLF001

    async def find(self, *names: str) -> list[str | None]:
        """Return the JSON of steps that were kept, by earlier attempts or by a call whose answer
        was lost; None for each other. LostLease if the attempt is not current."""
        if not self._may_be_kept:
            return [None for _ in names]
        wanted = [NamedStep(self.job_id, self._attempt.token, name) for name in names]
        found = await self.ask(lambda store: store.find_steps(wanted))
        texts = [self._attempt._found(each) for each in found]  # noqa: SLF001
        return [
            None if text is None else self.decode("step", text, self.job_id, name)
            for name, text in zip(names, texts, strict=True)
        ]

    def decode(self, kind: str, text: str, *names: str | int) -> str:
        """Return the JSON of a stored payload; the attempt ends by one that cannot be read here."""
        return self._attempt._read(self.payloads.decode, kind, text, *names)  # noqa: SLF001

    def encode(self, name: str, text: str) -> NamedStep:
        """Return a step with this JSON as its value, to be stored."""
        value = msgspec.Raw(text.encode())
        _, stored = self._attempt._encode_step(name, value, Any)  # noqa: SLF001
        return NamedStep(self.job_id, self._attempt.token, name, stored)

    async def keep(self, name: str, text: str) -> None:
        """Keep a step. LostLease if the attempt is not current."""
        step = self.encode(name, text)

        async def keep(store: Store) -> None:
            (answer,) = await store.keep_steps([step])
            self._attempt._kept(StepFound(answer))  # noqa: SLF001

        await self.ask(keep)

    def note_kept(self) -> None:
        """Note that another call has kept a step."""
        self._attempt._stepped = True  # noqa: SLF001

    async def watch(self, children: list[int]) -> None:
        """Let the end of the attempt wait for these children. LostLease if it is not current;
        UsageError if they wait for it, also as the next of an ordered limit's key: looked for only
        now, so that of two jobs that begin to wait for each other at once the later one sees it."""
        job_id = self.job_id
        await self._watch(children)
        if await self.ask(lambda store: store.inspector.waits_for_itself(job_id)):
            await self._watch([])
            raise UsageError(
                f"children of job {job_id} wait for this job itself, perhaps through other jobs or"
                " under the same key of an ordered limit: none of them would ever run"
            )

    async def _watch(self, children: list[int]) -> None:
        job_id, token = self.job_id, self._attempt.token
        if not await self.ask(lambda store: store.watch_children(job_id, token, children)):
            raise self.lost("it cannot wait for its children")

    def lost(self, what: str) -> LostLease:
        """Return the error of an attempt that is no longer the current one."""
        return self._attempt._lost(what)  # noqa: SLF001

    async def ask(self, verb: Callable[[Store], Awaitable[R]]) -> R:
        """Return what ``verb(store)`` returns; a verb that may be repeated."""
        return await self.patiently(lambda: self.stores.ask(verb))

    async def patiently(self, make: Callable[[], Awaitable[R]]) -> R:
        """Return what ``make()`` returns, which may be repeated: again and again while the store is
        away, until the attempt is asked to stop. StoreUnavailable after PATIENCE_SECONDS."""
        give_up_at = self.clock.boot() + PATIENCE_SECONDS
        while True:
            try:
                return await make()
            except StoreUnavailable:
                self._attempt.check()
                if self.clock.boot() >= give_up_at:
                    raise
                self._may_be_kept = True
            await hop(lambda: self.clock.sleep(PAUSE_SECONDS))
