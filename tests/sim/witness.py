"""Sees every verb that is really done on the store, and every step of user code, and judges.

Apart from the code under test: it reads the tables with its own statements. Since the simulation
has one thread, nothing can happen between its look and the verb.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from outlast.store.base import Answer

RESUMED_SECONDS = 1.0  # after a stop of everything, runners may take a step before they are ended
LAST = 60  # events that a failure shows


class Violation(AssertionError):
    """Something that Outlast never does."""


class Witness:
    """``violations`` is empty after a run in which every guarantee was kept."""

    def __init__(self, path: str, now: Callable[[], float], *, memory: int | None = LAST) -> None:
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._now = now
        self.violations: list[str] = []
        self.events: deque[str] = deque(maxlen=memory)
        self.counts: Counter[str] = Counter()
        self.accepted: set[int] = set()  # jobs whose enqueue has returned
        self.completed: dict[int, int] = {}  # job -> the token whose completion was accepted
        self.killed_from_outside: set[int] = set()  # tokens
        self.token_max = 0
        self._saved: dict[int, str | None] = {}  # job -> the checkpoint that was accepted last
        self._numbers: dict[int, int] = {}  # token -> the number of its last accepted checkpoint
        self._stepped: dict[int, int] = {}  # job -> the highest token that has run user code
        self.forgiven_until: dict[str, float] = {}  # worker -> when its late steps count again

    def close(self) -> None:
        """Let go of the file."""
        self._rows.close()

    def wrong(self, rule: str, sentence: str) -> None:
        """Note a violation."""
        self.violations.append(f"{rule}: {sentence} (at {self._now():.3f})")
        self.note("VIOLATION", {"rule": rule, "sentence": sentence})

    def note(self, name: str, fields: dict[str, Any]) -> None:
        """Keep an event for the story of a failure."""
        self.counts[name] += 1
        shown = " ".join(f"{key}={value}" for key, value in fields.items())
        self.events.append(f"{self._now():10.3f}  {name} {shown}"[:300])

    async def watch(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        """Do the verb, and check what it answered against the tables before it."""
        self.counts[f"store.{name}"] += 1
        before = self._current()
        reply = await real(*args, **kwargs)
        if name == "exchange":
            self._exchanged(args[1], reply, before)
        elif name == "checkpoint":
            self._fenced(name, args[0], reply, before)
            self._kept(args[0], reply)
        elif name == "reclaim":
            for transition in reply:
                if before.get(transition.job_id) != transition.token:
                    self.wrong("fenced", f"reclaimed {transition.job_id} of another token")
        return reply

    def _current(self) -> dict[int, int]:
        sql = "SELECT id, token FROM outlast_jobs WHERE worker_id IS NOT NULL"
        return dict(self._rows.execute(sql).fetchall())

    def _exchanged(self, ended: Any, reply: Any, before: dict[int, int]) -> None:
        self._fenced("exchange", ended, reply.answers, before)
        for end, answer in zip(ended, reply.answers, strict=True):
            if answer is Answer.ACCEPTED and end.state == "completed":
                if end.job_id in self.completed:
                    self.wrong("one accepted end", f"job {end.job_id} completed twice")
                self.completed[end.job_id] = end.token
        let_go = {
            end.job_id
            for end, answer in zip(ended, reply.answers, strict=True)
            if answer is Answer.ACCEPTED
        }
        for claimed in reply.claimed:
            if claimed.token <= self.token_max:
                self.wrong("tokens rise", f"{claimed.token} was drawn after {self.token_max}")
            self.token_max = max(self.token_max, claimed.token)
            if claimed.job_id in before and claimed.job_id not in let_go:
                self.wrong("one holder", f"job {claimed.job_id} was claimed while it was running")

        self._refused_nobodys_own(ended, reply.answers)
        self._handed_on(reply.claimed)

    def _refused_nobodys_own(self, ended: Any, answers: Any) -> None:
        """The same end written twice is ``already``, not a refusal."""
        for end, answer in zip(ended, answers, strict=True):
            own = self.completed.get(end.job_id) == end.token and end.state == "completed"
            if own and answer is Answer.REFUSED:
                self.wrong("already", f"the end of job {end.job_id} was refused to its owner")

    def _handed_on(self, claims: Any) -> None:
        """Checkpoints are those that were accepted; cancelled jobs are not run again."""
        for claimed in claims:
            saved = self._saved.get(claimed.job_id)
            if claimed.checkpoint != saved:
                told = f"{claimed.checkpoint}, but {saved} was accepted last"
                self.wrong("checkpoints", f"job {claimed.job_id} goes on from {told}")
            sql = "SELECT cancel_requested FROM outlast_jobs WHERE id = ?"
            if self._rows.execute(sql, (claimed.job_id,)).fetchone()[0]:
                self.wrong("cancel wins", f"job {claimed.job_id} runs though it was cancelled")

    def _kept(self, saves: Any, answers: Any) -> None:
        for save, answer in zip(saves, answers, strict=True):
            if answer is not Answer.ACCEPTED:
                continue
            if save.number <= self._numbers.get(save.token, 0):
                later = self._numbers[save.token]
                self.wrong("checkpoints", f"save {save.number} was accepted after {later}")
            self._numbers[save.token] = save.number
            self._saved[save.job_id] = save.value

    def _fenced(self, verb: str, writes: Any, answers: Any, before: dict[int, int]) -> None:
        for write, answer in zip(writes, answers, strict=True):
            if answer is Answer.ACCEPTED and before.get(write.job_id) != write.token:
                held = before.get(write.job_id)
                self.wrong(
                    "fenced", f"{verb} of job {write.job_id} under {write.token}, held by {held}"
                )

    def stepped(self, worker: str, job_id: int, token: int, *, may_double: bool = False) -> None:
        """See one step of user code: nobody may go on once a later attempt has begun."""
        latest = self._stepped.get(job_id, 0)
        self._stepped[job_id] = max(latest, token)
        late = token < latest and self._now() >= self.forgiven_until.get(worker, 0.0)
        if late and not may_double:
            self.wrong("the loser stops", f"job {job_id} went on under {token}, after {latest}")

    def unfinished(self) -> list[tuple[int, str]]:
        """Return accepted jobs that have not ended, or that are gone."""
        rows = dict(self._rows.execute("SELECT id, state FROM outlast_jobs").fetchall())
        ended = {"completed", "dead", "cancelled"}
        return sorted(
            (job_id, rows.get(job_id, "gone"))
            for job_id in self.accepted
            if rows.get(job_id) not in ended
        )

    def happened(self, event: str) -> bool:
        """Whether any worker has told of this event."""
        return any(name.endswith(f"] {event}") for name in self.counts)

    def worker_killed(self, worker_id: int) -> None:
        """Forgive what is charged for it: a job that had the whole worker to itself is."""
        sql = "SELECT token FROM outlast_jobs WHERE worker_id = ?"
        self.killed_from_outside |= {row[0] for row in self._rows.execute(sql, (worker_id,))}

    def failures_of(self, job_id: int) -> int:
        """Return how many attempts of a job were charged to it (not by a nemesis)."""
        sql = "SELECT token FROM outlast_attempts WHERE job_id = ? AND charge = 'failure'"
        tokens = {row[0] for row in self._rows.execute(sql, (job_id,))}
        return len(tokens - self.killed_from_outside)
