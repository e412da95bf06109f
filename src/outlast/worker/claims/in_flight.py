"""Holds every token of this worker from its claim to the store's answer about its end.

A slot is free for another claim only once the store has answered the end: until then no
reconciliation may give the job away.

A trip, one exchange with the store, is bounded in bytes as well as in ends and claims: a batch of
large jobs would never arrive over a slow link, however often it is repeated. The bound is halved
after a trip that broke off, and doubled after one that was at least half full and took at most a
quarter of the patience. A single job or end is sent regardless of its size. If a result that is
sent alone repeatedly fails to arrive, while trips in between are answered, it is given up, since it
would block all other ends of its worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice

import msgspec

from outlast.base.clock import Clock
from outlast.events import count_wanted, emit
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.runner.protocol import End
from outlast.store.values import TRIP_BYTES, Answer, Claimed, Save
from outlast.worker.base import Running
from outlast.worker.claims.counters import Counters
from outlast.worker.claims.dead_jobs import message_of, tell_dead
from outlast.worker.claims.evidence import Evidence
from outlast.worker.claims.pacing import TripPlan

# used for every job: a lookup in the class takes 0.3 us on Python 3.11
_COMPLETED, _BUSY, _REFUSED = OutcomeKind.COMPLETED, Answer.BUSY, Answer.REFUSED
_DEAD, _CANCELLED = State.DEAD, OutcomeKind.CANCELLED
_LOST_LEASE = CrashKind.LOST_LEASE
_NO_BEATS = "the store took no heartbeat of its worker, which had to stop it"
TRIP_BYTES_MIN = 64 * 1024
TRIP_BYTES_MAX = 16 * 1024 * 1024
ALONE_TRIES = 3  # attempts to send an end that is larger than the bound


class TripBytes:
    """The bound of one worker: ``limit`` bytes now; ``patience``: seconds after which a trip breaks
    off. With ``doubts`` an end that was sent alone did not arrive, and no trip was answered since:
    the next one carries no ends, and so shows whether there is a link at all."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._alone = (0, 0)  # the token of an end sent alone, and how often it did not arrive
        self.limit = TRIP_BYTES
        self.doubts = False

    def note_answer(self, carried: int, seconds: float) -> None:
        """Note an answered trip: the bytes that it carried both ways, and its duration."""
        self.doubts = False
        if 2 * carried >= self.limit and 4 * seconds <= self._patience:
            self.limit = min(TRIP_BYTES_MAX, 2 * self.limit)

    def note_break(self) -> None:
        """Note a trip that broke off."""
        self.limit = max(TRIP_BYTES_MIN, self.limit // 2)

    def is_alone(self, ended: Sequence[Transition]) -> bool:
        """Whether this is a single end above the bound: it is sent without claim requests."""
        return len(ended) == 1 and size_of(ended[0]) > self.limit

    def note_timeout(self, ended: Sequence[Transition]) -> bool:
        """Note a trip that was not answered in time; return whether to give up its single end."""
        if not self.is_alone(ended):
            return False
        token, tries = self._alone
        tries = tries + 1 if token == ended[0].token else 1
        self._alone = ended[0].token, tries
        self.doubts = True
        return tries >= ALONE_TRIES


def is_plain(running: Running, end: Transition) -> bool:
    """Whether nothing else depends on when this end is handed in: its job has completed, and no
    other waits for it, or for a limit that it is under."""
    return end.outcome == _COMPLETED and not running.claimed.awaited


def size_of(end: Transition) -> int:
    """Return the approximate size of an end in bytes, counting only parts that can be large."""
    size = len(end.result) if end.result else 0
    if end.crash is not None:
        texts = (end.crash.traceback, end.crash.stacks, *end.crash.output)
        size += sum(len(text) for text in texts if text)
    return size


def size_of_all(ends: Sequence[Transition]) -> int:
    """Return the approximate size of these ends; most have a short result and no crash."""
    size = 0
    for end in ends:
        if end.crash is not None:
            size += size_of(end)
        elif end.result:
            size += len(end.result)
    return size


def size_of_claimed(claimed: Sequence[Claimed]) -> int:
    """Return the size of what these jobs carry, in characters."""
    return sum([one.size for one in claimed])


class InFlight:
    """Tokens from claim to answer, and the ends to hand in, in their order. ``plan`` lets a trip be
    made for them; ``evidence`` completes ends that are not plain."""

    def __init__(self, clock: Clock, plan: TripPlan, evidence: Evidence) -> None:
        self._clock = clock
        self._plan = plan
        self._evidence = evidence
        self.counters = Counters()  # of ends that the store has accepted
        self.running: dict[int, Running] = {}
        self.ended: deque[Transition] = deque()
        self._handed_in: dict[int, Transition] = {}
        self._unanswered: dict[int, Running] = {}  # attempts with an unanswered end
        self._in_transaction: set[int] = set()  # tokens of attempts that called ``complete_in``
        self._unknown: dict[int, float] = {}  # those with an unknown outcome -> since when
        self._rejected: dict[int, Transition] = {}  # token -> the end reported instead
        self._busy_since: dict[int, float] = {}
        self._unreported: list[Claimed] = []  # attempts whose begin no event has reported yet
        self.token_seen = 0
        self._excuses_lost_leases = False

    def excuse_lost_leases(self, *, yes: bool) -> None:
        """From now on attempts that end because the lease is lost cost nothing; or a loss again."""
        self._excuses_lost_leases = yes

    def held(self) -> set[int]:
        """Return every token whose end the store has not answered."""
        return {*self.running, *self._handed_in, *(each.token for each in self.ended)}

    def job_of(self, token: int) -> tuple[int, str] | None:
        """Return id and task of the job whose running attempt has this token."""
        running = self.running.get(token)
        return None if running is None else (running.claimed.job_id, running.claimed.task)

    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not (self.running or self.ended or self._handed_in)

    def claim(self, claimed: Sequence[Claimed]) -> list[Running]:
        """Take claimed jobs; they start first, and ``tell_begun`` reports their begin later."""
        now = self._clock.boot()
        attempts = []
        for each in claimed:
            running = Running(each, each.token, now, now, each.losses)
            self.running[each.token] = running
            attempts.append(running)
        self.token_seen = max([self.token_seen, *[each.token for each in claimed]])
        self._unreported += claimed
        return attempts

    def tell_begun(self) -> None:
        """Report the attempts that were claimed since the last call."""
        claimed, self._unreported = self._unreported, []
        for each in claimed[: count_wanted("attempt_started", len(claimed))]:
            emit(
                "attempt_started",
                job_id=each.job_id,
                token=each.token,
                task=each.task,
                number=each.number,
            )

    def end(self, token: int, outcome: Outcome, *, completed_in: bool = False) -> Transition | None:
        """Note an attempt's end; return the transition to hand in. Only the first end counts."""
        ended = self.end_all([End(token, outcome, completed_in)])
        return ended[0][1] if ended else None

    def end_all(self, ends: Iterable[End]) -> list[tuple[Running, Transition]]:
        """Note how attempts ended; return the first ends among these, with their transitions."""
        if self._unreported:
            self.tell_begun()
        now = self._clock.boot()
        ended, known, failed = [], [], []
        for end in ends:
            if (each := self._end(end, now)) is None:
                continue
            ended.append(each)
            if end.token not in self._unknown:
                known.append(each)
                if each[1].crash and each[1].outcome != _CANCELLED:
                    failed.append(each)
        for running, transition in known[: count_wanted("attempt_ended", len(known))]:
            self._tell_end(running, transition, now)
        for running, transition in failed[: count_wanted("attempt_failed", len(failed))]:
            _tell_failed(running, transition)
        if ended:
            are_plain = all(is_plain(*each) for each in ended)
            self._plan.note_ends(now, len(self.ended), are_plain=are_plain)
        return ended

    def are_plain(self, ends: Iterable[Transition]) -> bool:
        """Whether all of these ends, which were taken, are plain (``is_plain``)."""
        return all(
            (running := self._unanswered.get(end.token)) is not None and is_plain(running, end)
            for end in ends
        )

    def _end(self, end: End, now: float) -> tuple[Running, Transition] | None:
        token, outcome = end.token, end.outcome
        running = self.running.pop(token, None)
        if running is None:
            return None
        if self._excuses_lost_leases and outcome.crash and outcome.crash.kind is _LOST_LEASE:
            outcome = Outcome(kind=OutcomeKind.RELEASED, message=_NO_BEATS, pid=outcome.pid)
        if end.completed_in:
            self._in_transaction.add(token)
            if outcome.kind is _COMPLETED:
                outcome = _let_store_check(outcome)
                self._unknown[token] = now
        if outcome.kind is not _COMPLETED or outcome.message:
            outcome = self._evidence.add(running, outcome)
            if outcome.kind is _COMPLETED and count_wanted("result_mismatched", 1):
                emit(
                    "result_mismatched",
                    job_id=running.claimed.job_id,
                    token=token,
                    task=running.claimed.task,
                    error=outcome.message,
                )
        cancelled = running.stop_reason == "cancel"
        facts = running.claimed.make_facts(running.losses, cancel_requested=cancelled)
        transition = decide(facts, outcome, self._clock.random)
        if transition.throttles is not None and count_wanted("limit_throttled", 1):
            emit(
                "limit_throttled",
                limit=transition.throttles,
                job_id=transition.job_id,
                token=token,
                seconds=transition.delay,
            )
        running.ended_at = now
        self._unanswered[token] = running
        self.ended.append(transition)
        return running, transition

    def _tell_checked(self, running: Running, transition: Transition, answer: Answer) -> None:
        ended_at = self._unknown.pop(transition.token)
        if answer is Answer.ALREADY:
            transition = msgspec.structs.replace(
                transition, outcome=_COMPLETED.value, state=State.COMPLETED
            )
        if count_wanted("attempt_ended", 1):
            self._tell_end(running, transition, ended_at)
        if transition.state is not State.COMPLETED and count_wanted("attempt_failed", 1):
            _tell_failed(running, transition)

    def _tell_end(self, running: Running, transition: Transition, ended_at: float) -> None:
        emit(
            "attempt_ended",
            job_id=transition.job_id,
            token=transition.token,
            task=running.claimed.task,
            outcome=transition.outcome,
            state=str(transition.state),
            seconds=round(ended_at - running.started_at, 3),
        )

    def take(self, limit: int, bytes_max: int | None = None) -> list[Transition]:
        """Return the oldest ends to hand in, at least one; each must be answered or given back."""
        if not self.ended:
            return []
        batch = list(islice(self.ended, limit))
        if bytes_max is not None and size_of_all(batch) > bytes_max:
            sizes = accumulate(map(size_of, batch))
            del batch[max(1, sum(size <= bytes_max for size in sizes)) :]
        if len(batch) == len(self.ended):
            self.ended.clear()
        else:
            for _ in batch:
                self.ended.popleft()
        self._handed_in.update({each.token: each for each in batch})
        return batch

    def give_back(self, batch: list[Transition]) -> None:
        """Take back ends whose trip broke off: they are handed in again, first."""
        for transition in reversed(batch):
            if self._handed_in.pop(transition.token, None) is not None:
                self.ended.appendleft(transition)
                self._plan.note_ends_back()

    def take_answers(self, ended: Sequence[Transition], answers: Sequence[Answer]) -> None:
        """Note the store's answers. ``busy`` ends are handed in again."""
        accepted: list[tuple[Running, str]] = []
        for transition, answer in zip(ended, answers, strict=True):
            token = transition.token
            self._handed_in.pop(token, None)
            if answer is _BUSY:
                self._busy_since.setdefault(token, self._clock.boot())
                self.ended.append(transition)
                self._plan.note_ends_back()
                continue
            running = self._unanswered.pop(token, None)
            if running is not None and answer is not _REFUSED:
                outcome = self._rejected.get(token, transition).outcome
                if answer is Answer.ALREADY and token in self._unknown:
                    outcome = _COMPLETED.value
                accepted.append((running, outcome))
            if running is not None and (transition.state is _DEAD or self._rejected):
                final = self._rejected.pop(token, transition)
                completed_itself = answer is Answer.ALREADY and token in self._unknown
                if final.state is _DEAD and answer is not _REFUSED and not completed_itself:
                    tell_dead(
                        final,
                        task=running.claimed.task,
                        queue=running.claimed.queue,
                        attempts=running.claimed.number,
                    )
            if self._busy_since or self._in_transaction:  # most attempts are in neither set
                self._busy_since.pop(token, None)
                self._in_transaction.discard(token)
                if running is not None and token in self._unknown:
                    self._tell_checked(running, transition, answer)
            if answer is _REFUSED:
                self.counters.note_refusal("end")
                emit("attempt_refused", job_id=transition.job_id, token=token)
        self.counters.note_ends(accepted)

    def find_first_waiting(self, pid: int) -> tuple[Running, float] | None:
        """Return this process's attempt that has waited longest for an answer to its end or to a
        save, and since when."""
        ended = [(each, each.ended_at) for each in self._unanswered.values()]
        saving = [
            (each, each.last_sign_at) for each in self.running.values() if each.saving is not None
        ]
        waiting = [each for each in ended + saving if each[0].pid == pid]
        return min(waiting, key=lambda each: each[1], default=None)

    def find_left_open(self, seconds: float) -> list[tuple[Transition, float]]:
        """Return the ends after a ``complete_in`` that have been ``busy`` for that long, with their
        seconds so far; each again only after ``seconds`` more."""
        if not self._in_transaction:
            return []
        now, since = self._clock.boot(), self._busy_since
        late = [
            (transition, now - since[transition.token])
            for transition in self.ended
            if transition.token in self._in_transaction
            and now - since.get(transition.token, now) >= seconds
        ]
        since.update((transition.token, now) for transition, _ in late)
        return late

    def reject(
        self, transition: Transition, message: str = "the store refused the result"
    ) -> Transition:
        """Replace an end whose result or report the store refuses; return the new end."""
        job_id, token = transition.job_id, transition.token
        if token not in self._rejected:
            emit("result_rejected", job_id=job_id, token=token, error=message)
        crash = Crash(kind=CrashKind.REJECTED_RESULT, message=message)
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, pid=transition.pid)
        running = self._unanswered[token]
        cancelled = running.stop_reason == "cancel"
        facts = running.claimed.make_facts(running.losses, cancel_requested=cancelled)
        decided = self._rejected[token] = decide(facts, outcome, self._clock.random)
        return decided

    def note_begun(self, token: int, at: float) -> None:
        """Note that an attempt's code began at this boot time: its limits count from then, even if
        this worker was stopped meanwhile."""
        running = self.running.get(token)
        if running is not None and running.began_at is None:
            running.began_at = min(self._clock.boot(), max(running.started_at, at))
            running.last_sign_at = max(running.last_sign_at, running.began_at)

    def note_returned(self, token: int) -> None:
        """Note that the function of an attempt has ended; hooks around it may still run."""
        running = self.running.get(token)
        if running is not None:
            running.is_over = True
            running.last_sign_at = self._clock.boot()

    def note_saving(self, token: int, mark: int | str) -> None:
        """Note that an attempt saves, or keeps a step: a sign of life. Its stall limit does not
        count until ``note_answer``, since the store may keep it waiting."""
        running = self.running.get(token)
        if running is not None:
            running.last_sign_at, running.saving = self._clock.boot(), mark

    def note_answer(self, token: int, mark: int | str) -> None:
        """Note the store's answer to this save. ``busy`` counts, too: the attempt itself may hold
        the row lock."""
        running = self.running.get(token)
        if running is not None and running.saving == mark:
            running.last_sign_at, running.saving = self._clock.boot(), None

    def losses_with_save(self, token: int, *, again: bool) -> int:
        """Return a job's losses with a checkpoint: none if the checkpoint differs from the one
        where the attempt resumed, else those at its claim, even if other checkpoints came between.

        So a long job that advances is never given up, while a job that is lost at the same point
        each time ends by its budget, even if it saves earlier points on the way. The checkpoints
        are compared where the task runs, since encryption makes each encoding differ. No store
        could tell a job that advances from one that saves something new each time.
        """
        running = self.running.get(token)
        return running.claimed.losses if again and running is not None else 0

    def note_save(self, save: Save) -> None:
        """Note an accepted checkpoint, and the job's losses with it."""
        running = self.running.get(save.token)
        if running is not None:
            running.saved_at = running.last_sign_at = self._clock.boot()
            running.losses = save.losses

    def note_step(self, token: int) -> None:
        """Note a step that is kept: it has forgiven the job's losses."""
        running = self.running.get(token)
        if running is not None:
            running.last_sign_at, running.losses = self._clock.boot(), 0

    def hide(self, text: str) -> str:
        """Return a text of an attempt as it is stored: without secrets."""
        return self._evidence.hide(text)

    def note_progress(self, token: int, progress: Progress) -> Progress:
        """Note the latest progress of an attempt; return it redacted, as it is stored."""
        kept = self._evidence.redact_progress(progress)
        running = self.running.get(token)
        if running is not None:
            running.progress = kept
            running.last_sign_at = self._clock.boot()
        return kept


def _tell_failed(running: Running, transition: Transition) -> None:
    emit(
        "attempt_failed",
        job_id=transition.job_id,
        token=transition.token,
        task=running.claimed.task,
        kind=transition.outcome,
        message=message_of(transition),
        state=str(transition.state),
    )


def _let_store_check(outcome: Outcome) -> Outcome:
    """Turn "I completed in my own transaction" into an end that the store checks: it answers
    ``already`` if this token has completed the job, ``busy`` while the transaction is open, and
    otherwise this failure stands. An exception raised after ``complete_in`` needs no check: most
    likely it has rolled the transaction back, and if not, the end is refused."""
    message = "complete_in was called, but its transaction was not committed"
    return Outcome(
        kind=OutcomeKind.CRASHED,
        crash=Crash(kind=CrashKind.COMPLETION_NOT_COMMITTED, message=message),
        message=outcome.message,
    )
