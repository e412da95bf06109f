"""What the duties of a worker ask of the pool that runs its attempts, and the pool of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from outlast.runner.protocol import Reported, SaveRequest
from outlast.store.values import ClaimRequest
from outlast.worker.claims.ledger import Running
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.runners.responsiveness import Responsiveness

KILL_SECONDS = 15.0  # for a killed runner to be gone, its group and its pipes included


class Pool(Protocol):
    """Runs attempts, in processes or in this one. Ends go to the ledger.

    ``alone_from`` is the smallest ``solo`` for which it cannot do with less than the whole worker.
    """

    name: str
    alone_from: int

    def registered(self, worker_id: int) -> None:
        """Note the worker's present registration."""
        ...

    def tasks(self) -> list[str]:
        """Return the names under which jobs can be taken now."""
        ...

    def lacks(self) -> dict[str, list[str]]:
        """Return the tasks that may not be served here -> the tags that they need on top."""
        ...

    def rooms(self, unanswered: int) -> list[ClaimRequest]:
        """Return what could be started now, or in a moment; ends that still wait take their
        slots."""
        ...

    def linger(self) -> float:
        """Return for how many seconds the next exchange may wait: no slot runs dry meanwhile."""
        ...

    def give_back(self, reason: str) -> None:
        """Give back what was claimed and has not begun."""
        ...

    def give_back_late(self) -> None:
        """Give back what has waited too long for a slot."""
        ...

    def waiting(self) -> int:
        """Return how many attempts were claimed and have not begun."""
        ...

    def room_alone(self, solo: int) -> ClaimRequest | None:
        """Return the request for one suspect of this kind that must have this worker to itself."""
        ...

    def place(self, attempts: list[Running]) -> None:
        """Start claimed attempts."""
        ...

    def stop(self, token: int, reason: str) -> None:
        """Ask an attempt to stop; unknown tokens are fine."""
        ...

    def kill(self, token: int) -> None:
        """End an attempt that did not stop, by force where there is force."""
        ...

    def kill_process(self, pid: int, reason: str) -> None:
        """End the runner with this pid, by force where there is force; unknown ones are fine."""
        ...

    def listen(self) -> None:
        """Look whether the runners' event loops turn."""
        ...

    def runs(self, token: int) -> bool:
        """Whether anything runs this attempt."""
        ...

    def responsiveness_of(self, token: int) -> Responsiveness | None:
        """Return the responsiveness of the attempt's runner; None if there is none."""
        ...

    def kill_all(self, reason: str, spare: Collection[int] = ()) -> None:
        """End every attempt now but these, by force where there is force."""
        ...

    def give_up(self, tokens: Collection[int]) -> None:
        """Wait no longer for processes that were killed, have these attempts and do not end."""
        ...

    async def run_once(self) -> float | None:
        """Keep the pool at its size; the pool is a duty of its worker."""
        ...

    async def close(self) -> None:
        """End what runs attempts; nothing of it is left afterwards."""
        ...


class CheckpointSink(Protocol):
    """Where the saves and reports of runners go."""

    def save(self, runner: RunnerProcess, running: Running, frame: SaveRequest) -> None:
        """Save a checkpoint and answer the runner."""
        ...

    def report(self, running: Running, frame: Reported) -> None:
        """Note progress."""
        ...
