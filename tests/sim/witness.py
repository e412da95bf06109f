"""Judges every verb that is really done on the store, and every step of user code.

Apart from the code under test: it reads the tables with its own statements. Since the simulation
has one thread, nothing can happen between its look and the verb.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store.values import Answer
from tests.sim.loop import AROUND
from tests.sim.tasks import plain

RESUMED_SECONDS = 1.0  # after a stop of everything, runners may take a step before they are ended
VIOLATIONS_MAX = 100  # then the seed ends: what goes on without a guard may have no end
LAST = 60  # events that a failure shows
FORGOTTEN_LEASES = 2.0  # after a failover that lost commits, until all workers have noticed
JUDGED = frozenset(
    {"exchange", "checkpoint", "progress", "reclaim", "reap", "register", "tell_gone"}
)
WELL_LEASES = 2.0  # without trouble of its own for so long, a worker must not be found silent,
WELL_LEASES_PRESENCE = 1.0  # nor gone by presence: that is judged by what is seen in a part of it


class Verb:
    """One verb: ``before`` and ``after`` are called at the moment it is done."""

    def __init__(self, witness: Witness, name: str, args: Any) -> None:
        self._witness = witness
        self._name = name
        self._args = args
        self._held: dict[int, int] = {}

    def before(self) -> None:
        """Read which worker holds which job."""
        self._held = self._witness.current()

    def after(self, reply: Any) -> None:
        """Judge."""
        self._witness.judge(self._name, self._args, reply, self._held)


class Witness:
    """``violations`` is empty if every guarantee was kept."""

    def __init__(self, world: Any, *, memory: int | None = LAST) -> None:
        self._world = world
        self._rows = world.disk.look()
        self.violations: list[str] = []
        self.events: deque[tuple[float, str, dict[str, Any]]] = deque(maxlen=memory)
        self.counts: Counter[str] = Counter()
        self.accepted: set[int] = set()  # jobs whose enqueue has returned
        self._discarded: set[int] = set()
        self.completed: dict[int, int] = {}  # job -> the token whose completion was accepted
        self._ends: dict[int, str] = {}  # token -> the outcome under which its end was accepted
        self.killed_from_outside: set[int] = set()  # tokens
        self.workers_killed: set[int] = set()  # ids
        self.token_max = 0
        self.went_back_at = float("-inf")  # when the store lost its last commits
        self._row_of: dict[str, int] = {}  # worker -> the row that it has registered last
        self._revived: set[int] = set()  # rows that their workers had ended, in commits now lost
        self._saved: dict[int, str | None] = {}  # job -> the checkpoint that was accepted last
        self._numbers: dict[int, int] = {}  # token -> the number of its last accepted checkpoint
        self._stepped: dict[int, int] = {}  # job -> the highest token that has run user code
        self._tokens: set[int] = set()  # all that were ever drawn, also what was lost since
        self._taken_up: dict[int, tuple[str | None, int]] = {}  # token -> checkpoint, losses
        self._started: set[int] = set()  # tokens that their worker knows
        self._forgiven: dict[str, float] = {}  # worker -> when its late steps count again

    def _now(self) -> float:
        return float(self._world.loop.now)

    def wrong(self, rule: str, sentence: str) -> None:
        """Note a violation."""
        self.violations.append(f"{rule}: {sentence} (at {self._now():.3f})")
        self.note("VIOLATION", {"rule": rule, "sentence": sentence})
        if len(self.violations) == VIOLATIONS_MAX:
            self._world.loop.stop()

    def note(self, name: str, fields: dict[str, Any]) -> None:
        """Keep an event for the story of a failure."""
        self.counts[name] += 1
        self.events.append((self._now(), name, fields))

    def told(self, name: str, fields: dict[str, Any]) -> None:
        """See an event: an attempt that a worker knows is never released as unknown."""
        if name == "attempt_started":
            self._started.add(fields["token"])
        elif name == "claim_reconciled" and fields["token"] in self._started:
            told = f"{fields['token']} of job {fields['job_id']} was given back as unheard"
            self.wrong("a slot is free after its answer", told)

    def story(self) -> Iterator[str]:
        """Yield the events that are kept, a line each."""
        for when, name, fields in self.events:
            shown = " ".join(f"{key}={value}" for key, value in fields.items())
            yield f"{when:10.3f}  {name} {shown}"[:300]

    async def watch(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        """Do the verb; what it does to the tables is judged at that moment."""
        self.counts[f"store.{name}"] += 1
        mark = AROUND.set(Verb(self, name, args) if name in JUDGED else None)
        try:
            return await real(*args, **kwargs)
        finally:
            AROUND.reset(mark)

    def judge(self, name: str, args: Any, reply: Any, before: dict[int, int]) -> None:
        """Hold the answer of a verb against the tables before it."""
        if name == "exchange":
            self._exchanged(args[0], args[1], reply, before)
        elif name == "register":
            self._registered(args[0].name, reply.worker_id)
        elif name == "reap":
            self._reaped(reply, *args)
        elif name == "tell_gone":
            self._told_gone(args[0])
        elif name == "reclaim":
            for one in reply:
                if isinstance(one, Transition) and before.get(one.job_id) != one.token:
                    self.wrong(
                        "fenced", f"reclaimed {one.job_id} of another token than {one.token}"
                    )
        else:
            self._fenced(name, args[0], reply, before)
            if name == "checkpoint":
                self._kept(args[0], reply)
        for law, breaks in self._world.laws.items():
            if wrong := breaks() if callable(breaks) else self.read(breaks):
                self.wrong(law, f"{wrong}")

    def read(self, sql: str) -> list[Any]:
        """Return rows of the tables."""
        return self._rows.execute(sql).fetchall()

    def current(self) -> dict[int, int]:
        sql = "SELECT id, token FROM outlast_jobs WHERE worker_id IS NOT NULL"
        return dict(self._rows.execute(sql).fetchall())

    def _exchanged(self, me: Any, ended: Any, reply: Any, before: dict[int, int]) -> None:
        if reply.claimed and not self._stands(me):
            self.wrong("only the living claim", f"worker {me.worker_id} at epoch {me.epoch}")
        self._fenced("exchange", ended, reply.answers, before)
        for end, answer in zip(ended, reply.answers, strict=True):
            if answer is Answer.ACCEPTED and end.state == "completed":
                if end.job_id in self.completed:
                    self.wrong("one accepted end", f"job {end.job_id} completed twice")
                self.completed[end.job_id] = end.token
                self._finished(end)
        let_go = {
            end.job_id
            for end, answer in zip(ended, reply.answers, strict=True)
            if answer is Answer.ACCEPTED
        }
        for claimed in reply.claimed:
            if claimed.token <= self.token_max:
                self.wrong("tokens rise", f"{claimed.token} was drawn after {self.token_max}")
            if claimed.token in self._tokens:
                self.wrong("a token is drawn once", f"{claimed.token} of job {claimed.job_id}")
            self._tokens.add(claimed.token)
            self.token_max = max(self.token_max, claimed.token)
            if claimed.job_id in before and claimed.job_id not in let_go:
                self.wrong("one holder", f"job {claimed.job_id} was claimed while it was running")

        self._check_refused_ends(ended, reply.answers)
        self._handed_on(reply.claimed)

    def _finished(self, end: Transition) -> None:
        """A task that returns what it has so far, because it was asked to stop, is not finished."""
        sql = """SELECT json_extract(args, '$.steps') FROM outlast_jobs
                 WHERE id = ? AND task = 'polite'"""
        row = self._rows.execute(sql, (end.job_id,)).fetchone()
        result = plain("result", end.result)
        if row is not None and result != str(row[0]):
            told = f"job {end.job_id} completed after {result} of {row[0]} steps"
            self.wrong("stopped is not finished", told)

    def _stands(self, me: Any) -> bool:
        sql = "SELECT status = 'active' FROM outlast_workers WHERE id = ? AND epoch = ?"
        row = self._rows.execute(sql, (me.worker_id, me.epoch)).fetchone()
        return row is not None and bool(row[0])

    def _registered(self, name: str, worker_id: int) -> None:
        """A worker has one row, also when earlier requests were lost."""
        self._row_of[name] = worker_id
        alive = {row for row, whose in self._alive() if whose == name} - self._revived
        lately = self._now() - self.went_back_at < FORGOTTEN_LEASES * self._world.lease
        if len(alive) > 1 and not lately:  # its older row is from before the lost commits
            self.wrong("one row for a worker", f"{name} has {len(alive)}")

    def _alive(self) -> list[tuple[int, str]]:
        sql = "SELECT id, name FROM outlast_workers WHERE status IN ('active', 'draining')"
        return self._rows.execute(sql).fetchall()

    def _reaped(self, done: bool, gone: Any, cause: DeathCause = DeathCause.SILENCE) -> None:
        """No worker is found gone that has beaten since, or that lives without a fault."""
        if not done:
            return
        sql = "SELECT beat FROM outlast_workers WHERE id = ?"
        beat = self._rows.execute(sql, (gone.worker_id,)).fetchone()[0]
        if beat > gone.beat:
            told = f"worker {gone.worker_id} was seen at beat {gone.beat}, and reaped at {beat}"
            self.wrong("no false reclaim", told)
        owner = self._world.owner_of(gone.worker_id)
        if owner is None:
            return
        leases = WELL_LEASES_PRESENCE if cause is DeathCause.PRESENCE else WELL_LEASES
        well = owner.well_for > leases * gone.lease
        if well or cause.proven:
            self.wrong("no false reclaim", f"{owner.name} lives, and was reaped for {cause.value}")
        elif cause is DeathCause.PRESENCE:  # cut off or stopped, and its session ended: documented
            self.forgive(owner.name, gone.lease)

    def _told_gone(self, lock: Any) -> None:
        """A last will is of a worker of which no process is left."""
        for worker in self._world.workers:
            if worker.will == lock and not worker.process.killed:
                self.wrong("no false will", f"{worker.name} lives, and is said to be gone")
            if worker.will == lock and worker.runners:
                self.wrong("no false will", f"{worker.name} has runners, and is said to be gone")

    def _check_refused_ends(self, ended: Any, answers: Any) -> None:
        """The same end written twice is ``already``, not a refusal."""
        for end, answer in zip(ended, answers, strict=True):
            if answer is Answer.ACCEPTED:
                self._ends[end.token] = end.outcome
            elif answer is Answer.REFUSED and self._ends.get(end.token) == end.outcome:
                self.wrong("already", f"the end of job {end.job_id} was refused to its owner")

    def _handed_on(self, claims: Any) -> None:
        """Checkpoints are those that were accepted; cancelled jobs are not run again."""
        for claimed in claims:
            saved = self._saved.get(claimed.job_id)
            if claimed.checkpoint != saved:
                told = f"{claimed.checkpoint}, but {saved} was accepted last"
                self.wrong("checkpoints", f"job {claimed.job_id} goes on from {told}")
            sql = "SELECT cancel_requested, losses FROM outlast_jobs WHERE id = ?"
            cancelled, losses = self._rows.execute(sql, (claimed.job_id,)).fetchone()
            self._taken_up[claimed.token] = plain("checkpoint", saved), losses
            if cancelled:
                self.wrong("cancel wins", f"job {claimed.job_id} runs though it was cancelled")

    def _kept(self, saves: Any, answers: Any) -> None:
        kept: dict[int, Any] = {}  # token -> the last that was accepted
        for save, answer in zip(saves, answers, strict=True):
            if answer is not Answer.ACCEPTED:
                continue
            if save.number <= self._numbers.get(save.token, 0):
                later = self._numbers[save.token]
                self.wrong("checkpoints", f"save {save.number} was accepted after {later}")
            self._numbers[save.token] = save.number
            self._saved[save.job_id] = save.value
            kept[save.token] = save
        for save in kept.values():
            if save.token in self._taken_up:
                self._forgiven_for(save)

    def _forgiven_for(self, save: Any) -> None:
        """Losses are forgiven to a job that is left elsewhere than it was taken up, and to no other
        one: it would kill workers without end."""
        before, losses = self._taken_up[save.token]
        sql = "SELECT losses FROM outlast_jobs WHERE id = ? AND token = ?"
        row = self._rows.execute(sql, (save.job_id, save.token)).fetchone()
        due = losses if plain("checkpoint", save.value) == before else 0
        if row is not None and row[0] != due:
            told = f"job {save.job_id} has {row[0]} losses after a save, and is due {due}"
            self.wrong("saving the same again is no progress", told)

    def _fenced(self, verb: str, writes: Any, answers: Any, before: dict[int, int]) -> None:
        for write, answer in zip(writes, answers, strict=True):
            if answer is Answer.ACCEPTED and before.get(write.job_id) != write.token:
                held = before.get(write.job_id)
                self.wrong(
                    "fenced", f"{verb} of job {write.job_id} under {write.token}, held by {held}"
                )

    def stepped(self, worker: str, job_id: int, token: int) -> None:
        """See one step of user code: an attempt may not go on once a later one has begun."""
        latest = self._stepped.get(job_id, 0)
        self._stepped[job_id] = max(latest, token)
        if token < latest and self._now() >= self._forgiven.get(worker, 0.0):
            self.wrong("the loser stops", f"job {job_id} went on under {token}, after {latest}")

    def forgive(self, worker: str, seconds: float) -> None:
        """Let the late steps of a worker's attempts not count for so long."""
        self._forgiven[worker] = max(self._forgiven.get(worker, 0.0), self._now() + seconds)

    def judge_the_rescue(self, held: set[str]) -> None:
        """A row that stays locked delays only the recovery of its own worker's jobs."""
        alive = {each.name for each in self._world.alive()}
        sql = """SELECT j.id, w.name FROM outlast_jobs j
                 JOIN outlast_workers w ON w.id = j.worker_id
                 WHERE w.status IN ('active', 'draining')"""
        for job_id, name in self._rows.execute(sql).fetchall():
            if name not in alive | held:
                self.wrong("a held row delays nothing else", f"{job_id} still runs on dead {name}")

    def accept(self, job_id: int) -> None:
        """Note that an enqueue has returned: its job has to end, unless it died and was discarded
        while the reply was on its way."""
        if job_id not in self._discarded:
            self.accepted.add(job_id)

    def forget_job(self, job_id: int, token: int) -> None:
        """Forget a dead job that was discarded, and its last end."""
        self.accepted.discard(job_id)
        self._discarded.add(job_id)
        self._ends.pop(token, None)

    def went_back(self) -> None:
        """The store has lost its last commits: what it holds now is what was accepted.

        Which attempts it has forgotten, and which workers ran them under lost tokens, is found
        out by their workers within a lease. Tokens go on rising all the same.
        """
        sql = "SELECT id, state, token, checkpoint FROM outlast_jobs"
        rows = {row[0]: row[1:] for row in self._rows.execute(sql).fetchall()}
        self.accepted &= set(rows)
        self._revived |= {row for row, name in self._alive() if row != self._row_of.get(name)}
        self._discarded.clear()  # their ids may be given again
        self.completed = {
            job_id: token for job_id, (state, token, _) in rows.items() if state == "completed"
        }
        self._saved = {job_id: saved for job_id, (_, _, saved) in rows.items()}
        self._ends.clear()
        self._numbers.clear()
        self._taken_up.clear()
        self._started.clear()
        self.went_back_at = self._now()
        for worker in self._world.workers:
            self.forgive(worker.name, FORGOTTEN_LEASES * self._world.lease)

    def unfinished(self) -> list[tuple[int, str]]:
        """Return accepted jobs that have not ended, or that are gone."""
        rows = dict(self._rows.execute("SELECT id, state FROM outlast_jobs").fetchall())
        ended = {"completed", "dead", "cancelled"}
        return sorted(
            (job_id, rows.get(job_id, "gone"))
            for job_id in self.accepted
            if rows.get(job_id) not in ended
        )

    def judge_the_whole(self) -> None:
        """Judge what can be seen only at the end; let go of the file."""
        innocent = """SELECT id FROM outlast_jobs WHERE args LIKE '%"ending": "complete"%'"""
        for (job_id,) in self._rows.execute(innocent).fetchall():
            if failures := self._failures_of(job_id):
                self.wrong("blame", f"job {job_id} never fails, and has {failures} failures")
        if not self._world.faulty:
            for name in ("worker_reaped", "lease_lost", "job_reenqueued", "claim_reconciled"):
                if self._happened(name):
                    self.wrong("no false reclaim", f"{name} in a world without faults")
        self._rows.close()

    def worker_of(self, job_id: int) -> int | None:
        """Return the id of the worker that a job runs on."""
        sql = "SELECT worker_id FROM outlast_jobs WHERE id = ?"
        row = self._rows.execute(sql, (job_id,)).fetchone()
        return None if row is None else row[0]

    def _happened(self, event: str) -> bool:
        """Return whether any worker has emitted this event."""
        return any(name.endswith(f"] {event}") for name in self.counts)

    def worker_killed(self, worker_id: int) -> None:
        """Forgive what is charged for it: a job that had the whole worker to itself is, also where
        its claim was done, in the store, only after the worker's death."""
        self.workers_killed.add(worker_id)

    def _failures_of(self, job_id: int) -> int:
        """Return how many attempts of a job were charged to it (not by a nemesis)."""
        sql = (
            "SELECT token, worker_id, outcome FROM outlast_attempts"
            " WHERE job_id = ? AND charge = 'failure'"
        )
        charged = (
            token
            for token, worker_id, outcome in self._rows.execute(sql, (job_id,))
            if not (outcome == "lost_worker" and worker_id in self.workers_killed)
        )
        return len(set(charged) - self.killed_from_outside)
