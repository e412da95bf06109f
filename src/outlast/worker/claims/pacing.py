"""Decides when the exchange makes its next trip to the store (``TripPlan``). No other code does.

A worker requests work at once when it learns of some: by a notification, from the announcer, or
from a peek at the store, which shows new positions, or a job due before the next peek. Otherwise it
requests work at the due time in the last reply, and at each poll, since each hint may be lost. It
polls less often if something else would show new work: peeks, a wake-up that notices each write by
itself, or a healthy messenger. The log of ``outlast.trips`` gives the reason of each trip, at debug
level.

``WakeTurns`` decides which of many idle workers follows a wake-up. All listeners hear it, so no
worker that is full, paused or about to leave can swallow one. Each has another place among its
*peers*, the workers that serve the same, and the places change from one wake-up to the next, or
after a *run* of close ones, so that claims and ends share trips. The first one makes a claim at
once. After each further step, as long as a claim takes this worker, twice as many have had their
turn: soon all, in case it fails. A wake-up for several jobs lets that many workers claim at once.

A worker that followed a wake-up tells the others with the commit of its claim
(``outlast_exchange_v1``): all of them "this job is taken", and its own kind "there is no more". A
worker that misses this makes one needless trip; the next peek or poll finds a missed job.
"""

from __future__ import annotations

import hashlib
import logging
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from outlast.base.clock import Clock
from outlast.model.lease import LOOK_SECONDS
from outlast.store.protocol import OUTCOMES_MAX, ServerStore
from outlast.store.values import Answer, ClaimRequest, Exchanged, FollowedWakeups, Peek
from outlast.store.wakeup import Wakeup
from outlast.wakeup.inbox import Inbox
from outlast.worker.base import Lease, Owner
from outlast.worker.service import Nudge

POLL_FACTOR_WHERE_SHOWN = 5.0  # peeks, or a wake-up that notices writes, show new and due jobs
POLL_FACTOR_WITH_MESSENGER = 10.0
PAUSE_SECONDS_MIN = 0.001
CONTENDED_DOUBLINGS = 6  # of a pause of 2 to 8 ms, while others hold the limits
BUSY_PAUSE_SECONDS = 0.05  # before an end with a locked row is sent again
LATE_SECONDS = 0.04  # in which the end of a plain job waits for company
GATHER_SECONDS = 0.05  # in which ends gather for one trip while enough attempts wait for a slot

_log = logging.getLogger("outlast.trips")
STEP_SECONDS_MIN, STEP_SECONDS_MAX = 0.008, 0.064  # for a claim to be made and heard of
STEP_TRIPS = 1.5  # claims in a step: the others have to hear of it, too
STEP_SHARE = 0.25  # of the last claim that goes into the step
GAP_SECONDS = 0.006  # between the beginnings of two claims for wake-ups, if there are no peers
SAME_FIRST_WAKEUPS = 16  # close ones in a row that begin with the same worker
WAITING_MAX = 1_000  # wake-ups
TOLD_MAX = 100  # queues in one answer: a notification has 8000 bytes
SEEN_SECONDS = 3 * LOOK_SECONDS  # in which a peek at already followed positions is not news
NUMBER_MAX = 2**63
EASED_PEERS = 10  # workers of a kind whose rare peeks together are frequent enough
COUNT_SECONDS_MIN, COUNT_SECONDS_MAX = 1.0, 60.0  # between two counts of peers


class Waiting(msgspec.Struct):
    """A wake-up that is not followed yet: its number of jobs, and when its turn comes."""

    jobs: int
    at: float


class WakeTurns:
    """The duty that lets its owner look for work when a wake-up's turn has come."""

    name = "wake_turns"

    def __init__(
        self,
        owner: Owner,
        queues: Iterable[str],
        clock: Clock,
        wakeup: Wakeup | None = None,
    ) -> None:
        self.nudge = Nudge()
        self.peers = 1
        self._before = 0  # how many of them registered before this worker
        self._heard_at = -math.inf
        self._step = STEP_SECONDS_MIN
        self._owner = owner
        self._queues = sorted(queues)
        self._clock = clock
        self._wakeup = wakeup
        self._waiting: dict[int, Waiting] = {}
        self._kind: tuple[object, str] | None = None  # what it serves, its name
        self._passed_over: tuple[tuple[str, ...], ...] = ((), ())  # paused queues, paused tenants
        self._seen, self._seen_at = 0, -math.inf  # position that its kind reported
        self._not_before = -math.inf  # when the next claim for a wake-up may be made

    def note_peers(self, count: int, before: int) -> None:
        """Note how many workers serve the same, this one included; ``before``: how many of them
        registered before it. If some have other numbers, two may be first, or none for a step."""
        self.peers, self._before = max(1, count), before

    def are_among_many(self) -> bool:
        """Return whether this worker may peek rarely: it hears of new work by its wake-up, and
        enough others of its kind peek, too."""
        wakeup = self._wakeup
        return wakeup is not None and wakeup.health.good and self.peers >= EASED_PEERS

    def note_trip(self, seconds: float) -> None:
        """Note the duration of a trip that only requested jobs."""
        step = self._step + STEP_SHARE * (STEP_TRIPS * seconds - self._step)
        self._step = min(max(step, STEP_SECONDS_MIN), STEP_SECONDS_MAX)

    def note_claim(self, now: float) -> None:
        """Note that a claim begins, which close wake-ups share."""
        self._not_before = now + self._find_gap()

    # -- hearing wake-ups

    def hear(self, payload: str) -> bool:
        """Take a payload, which anyone may have written; return whether to look for work now."""
        kind, _, subject = payload.partition(":")
        if kind == "taken":
            self._stand_down(subject.split(":"))
            return False
        if kind != "jobs":
            return not payload or (kind == "queue" and self._serves(subject))
        position, _, rest = subject.partition(":")
        jobs, _, queue = rest.partition(":")
        if not self._serves(queue):
            return False
        return self._wait_turn(_number(position), _number(jobs), self._not_before)

    def hear_of_look(self, before: int, drawn: int) -> bool:
        """Take the last position drawn, by the peek before this one and by this one. Return whether
        to look for work now."""
        followed = self._clock.boot() - self._seen_at < SEEN_SECONDS
        if followed and before <= drawn <= self._seen:
            return False
        return self._wait_turn(drawn, max(1, drawn - before))

    def _serves(self, queue: str) -> bool:
        return not self._queues or queue in self._queues

    def _wait_turn(self, position: int, jobs: int, not_before: float = -math.inf) -> bool:
        if not position or not jobs or len(self._waiting) >= WAITING_MAX:
            return True
        if position in self._waiting:
            return False
        now = self._clock.boot()
        is_close = now - self._heard_at < LATE_SECONDS
        self._heard_at = now
        place = self._find_place(position // SAME_FIRST_WAKEUPS if is_close else position)
        pause = 0.0
        if place > jobs:  # the first ones may have to wait for a gap
            pause = self._step * math.log2(place / jobs) + (self._find_gap() if is_close else 0.0)
        pause = max(pause, not_before - now)
        self._waiting[position] = Waiting(jobs, now + pause)
        if pause > 0:
            self.nudge.give_within(pause)
        return pause <= 0

    def _find_place(self, turn: int) -> int:
        """Return this worker's place among its peers, from 1 on, in a turn."""
        return (self._before + zlib.crc32(b"%d" % turn)) % self.peers + 1

    def _find_gap(self) -> float:
        """Return the gap between two claims: each is told to all peers, so that the more there are,
        the more wake-ups share one."""
        return GAP_SECONDS * (1 + math.log2(self.peers) / 2)

    def _stand_down(self, parts: list[str]) -> None:
        if len(parts) != 4:  # noqa: PLR2004  # claimed, kind, followed, drawn
            return
        claimed, kind, followed, drawn = parts
        for position in map(_number, claimed.split(",")):
            waiting = self._waiting.get(position)
            if waiting is not None and waiting.jobs == 1:
                del self._waiting[position]
        if kind == self._name_kind():
            for position in map(_number, followed.split(",")):
                self._waiting.pop(position, None)
            self._seen, self._seen_at = _number(drawn), self._clock.boot()

    # -- following them

    async def run_once(self) -> float | None:
        """Look for work if a turn has come; return the seconds until the next turn."""
        now = self._clock.boot()
        self._waiting = {
            p: each for p, each in self._waiting.items() if now - each.at < SEEN_SECONDS
        }
        if any(each.at <= now for each in self._waiting.values()):
            self._owner.look_for_work()
        return min(
            (each.at - now for each in self._waiting.values() if each.at > now), default=None
        )

    def follow(self, requests: Sequence[ClaimRequest]) -> FollowedWakeups | None:
        """Follow all heard wake-ups, by an exchange that begins now; return what to tell others."""
        if requests:
            self._passed_over = requests[0].not_queues, requests[0].not_tenants
        if not self._waiting:
            return None
        asked_for = {task for request in requests if not request.solo for task in request.tasks}
        if not asked_for:
            return None
        waiting, self._waiting = self._waiting, {}
        if self.peers <= 1:
            return None
        kind = self._name_kind() if asked_for.issuperset(self._owner.pool.starter.tasks()) else None
        return FollowedWakeups(kind, list(waiting)[-TOLD_MAX:])

    def _name_kind(self) -> str:
        """Name this worker's kind: where one worker of it finds no job, none does."""
        served = [self._queues, self._owner.pool.starter.tasks(), self._passed_over]
        if self._kind is None or self._kind[0] != served:
            name = hashlib.blake2b(msgspec.json.encode(served), digest_size=6).hexdigest()
            self._kind = served, name
        return self._kind[1]


def is_request(payload: str, worker_id: int) -> bool:
    """Return whether a payload says that a request for this worker waits."""
    kind, _, whom = payload.partition(":")
    return whom == str(worker_id) and kind in {"cancel", "drain", "stack"}


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0  # noqa: PLR2004
    return number if number < NUMBER_MAX else 0


class PeerCount:
    """The duty that counts the peers: often while their number changes, then ever more rarely."""

    name = "peers"

    def __init__(self, store: ServerStore, lease: Lease, turns: WakeTurns) -> None:
        self.nudge = Nudge()
        self._store = store
        self._lease = lease
        self._turns = turns
        self._pause = COUNT_SECONDS_MIN

    async def run_once(self) -> float:
        """Count once; return the seconds until the next time."""
        last = self._turns.peers
        peers, before = await self._store.count_peers(self._lease.me)
        self._turns.note_peers(peers, before)
        stays = last / 2 < peers < last * 2
        self._pause = min(2 * self._pause, COUNT_SECONDS_MAX) if stays else COUNT_SECONDS_MIN
        return self._pause


class Reason(StrEnum):
    """Why a trip is made."""

    HINT = "hint"  # a wake-up, or another part of the worker, said that there may be work
    POSITION = "position"  # a peek has shown a new position
    DUE = "due"  # a job falls due
    SEARCH = "search"  # the store has more to search, by its last reply
    POLL = "poll"
    CHECK = "check"  # attempts run, or the messenger may have fallen silent
    ENDS = "ends"  # attempts have ended, or the row of an end was locked
    MORE = "more"  # the last reply filled all slots, or was cut: there may be more jobs


def _is_end(requests: Sequence[ClaimRequest], reply: Exchanged, tasks: Iterable[str]) -> bool:
    """Return whether a reply leaves no job of these tasks to an end: each is in a request that has
    places left, whichever request the claimed jobs are for."""
    given = Counter(each.task for each in reply.claimed if not each.solo)
    left = set(tasks)
    for request in requests:
        if not request.solo and sum(given[task] for task in request.tasks) < request.limit:
            left.difference_update(request.tasks)
    return not left


class TripPlan:
    """When one worker makes its trips, to hand in ends or look for work. ``nudge`` starts one.

    Args:
        poll: seconds between two polls if nothing else would show new work.
        look_every: seconds between two checks for newer holders of running attempts.
        turns: receives new positions, and decides whether this worker follows them at once.
        wakeup: read each time for its health.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        poll: float,
        look_every: float,
        turns: WakeTurns,
        wakeup: Wakeup | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        self.nudge = Nudge()
        self._clock = clock
        self._poll = poll
        self._look_every = look_every
        self.turns = turns
        self._wakeup = wakeup
        self.inbox = inbox
        self._drawn: int | None = None  # the last position that a peek has shown
        self._peeked_at = self._look_at = clock.boot()
        self.asked_at = clock.boot() - poll  # when the last trip began
        self.rests_until = -math.inf  # the last claim found no more; when the next one is due
        self._contended = 0  # by how many doublings: raised by a vain trip, lowered by another
        self.is_hinted = False  # new work may exist: the next run makes a trip even if it is early
        self.reason = Reason.POLL  # why the next trip is made
        self._gather_to = 0  # up to how many ends wait for the next trip
        self._most_late = 0  # how many plain ends may wait for the next trip
        self._hand_in_at = math.inf  # when the ends that wait are to be handed in

    # -- why a trip is made

    def hint(self, reason: Reason = Reason.HINT) -> None:
        """Note that new work may exist: the next run makes a trip even if it is early."""
        self.is_hinted, self.reason = True, reason

    def take_peek(self, peek: Peek) -> bool:
        """Act on a peek; return whether to make a trip now. A messenger announces work itself."""
        if self.inbox is not None or peek.drawn is None:
            return False
        before_at, self._peeked_at = self._peeked_at, self._clock.boot()
        before, self._drawn = self._drawn, peek.drawn
        rest = max(LOOK_SECONDS, self._peeked_at - before_at)  # until the next peek
        if before is None or (before != peek.drawn and self.turns.hear_of_look(before, peek.drawn)):
            self.hint(Reason.POSITION)
        elif peek.next_due is not None and peek.next_due <= rest:
            self.hint(Reason.DUE)
        return self.is_hinted

    def begin(self) -> None:
        """Note that a run of the exchange begins. Ends that come during it request no trip: the
        pause after it counts them."""
        self._gather_to = 0

    def note_ends(self, now: float, waiting: int, *, are_plain: bool) -> None:
        """Let a trip be made for ends that came now: at once, unless they ``are_plain`` and may
        wait (``waiting``: how many do now)."""
        if waiting < self._gather_to:
            self._hand_in_at = min(self._hand_in_at, now)
        elif waiting <= self._most_late and are_plain:
            self._hand_in_at = min(self._hand_in_at, now + LATE_SECONDS)
            self.nudge.give_within(self._hand_in_at - now)
        else:
            self._hand_in_at = now
            self.nudge.give_within(0.0)

    def note_ends_back(self) -> None:
        """Note ends that are to be handed in again: they have waited long enough."""
        self._hand_in_at = -math.inf

    def note_asked(self, now: float, waiting: int, *, has_ends: bool = False) -> None:
        """Note that a trip begins, which covers all hints, and leaves ``waiting`` ends."""
        if has_ends and not self.is_hinted:
            self.reason = Reason.ENDS
        _log.debug("a trip to the store: %s", self.reason)
        self.is_hinted = False
        self.asked_at = self._look_at = now
        if not waiting:
            self._hand_in_at = math.inf

    def may_wait(self) -> bool:
        """Whether a trip can wait: the messenger would announce new jobs."""
        return self._is_announced() and not self.is_hinted and self._clock.boot() < self._look_at

    def is_poll_due(self, now: float) -> bool:
        """Whether the last trip began at least one poll interval ago."""
        return now - self.asked_at >= self._poll

    def may_hand_in_alone(self, now: float) -> bool:
        """Whether a trip for plain ends need not look for jobs: the last claim found no more, the
        next one is not due, and a wake-up would show new jobs."""
        return (
            now < self.rests_until
            and not self.is_hinted
            and self._wakeup is not None
            and self._wakeup.health.good
            and self.inbox is None
        )

    # -- when the next one is made

    def rest(self, waiting: int) -> float:
        """Return the pause after a run without a trip, in which ends may have come."""
        pause = self._wait(min(self._poll, self._look_every), Reason.POLL)
        return min(pause, self._find_late(waiting))

    def take_reply(
        self,
        requests: Sequence[ClaimRequest],
        reply: Exchanged,
        waiting: int,
        *,
        tasks: Iterable[str],
        is_running: bool,
        ahead: int,
    ) -> float:
        """Return the pause after a reply that requires no further trip at once.

        ``waiting``: ends for the next trip. ``tasks``: those that the worker serves.
        ``is_running``: attempts run, whose holders are checked every ``look_every``. ``ahead``: how
        many may end before a slot could be idle.
        """
        if Answer.BUSY in reply.answers:
            return self._wait(BUSY_PAUSE_SECONDS, Reason.ENDS)
        asked = ordinary = 0
        for request in requests:
            asked += 0 if request.solo else request.limit
        for claimed in reply.claimed:
            ordinary += not claimed.solo
        if self.inbox is not None:
            self.inbox.offer(asked - ordinary)
        is_end = bool(requests) and not reply.cut and _is_end(requests, reply, tasks)
        if requests:
            self._note_claim(reply)
            self._most_late = (asked - ordinary) // 2 if is_end else 0
        late = self._find_late(waiting)
        is_filled = asked and ordinary >= asked
        if self.is_hinted or not late or reply.cut or is_filled:
            self.rests_until = -math.inf
            # half of them may begin meanwhile; the rest lasts for the next trip and its ends
            more = max(0, min(ahead // 2, ahead - 2 * waiting))
            self._gather_to = min(OUTCOMES_MAX, waiting + more)
            is_gathering = self._gather_to > waiting
            return self._wait(GATHER_SECONDS if is_gathering else 0.0, Reason.MORE)
        now = self._clock.boot()
        if not requests and now < self.rests_until:  # what the last claim has shown still holds
            return min(late, self.rests_until - now)
        pause = self._find_pause(reply, has_looked=bool(requests), is_running=is_running)
        if requests:
            self.rests_until = now + pause if is_end else -math.inf
        return min(late, pause)

    def _wait(self, seconds: float, reason: Reason) -> float:
        """Return the pause before the next trip, made for this reason unless a hint comes first."""
        if not self.is_hinted:
            self.reason = reason
        return seconds

    def _find_late(self, waiting: int) -> float:
        return max(0.0, self._hand_in_at - self._clock.boot()) if waiting else math.inf

    def _note_claim(self, reply: Exchanged) -> None:
        """Note whether other workers kept this one out of the limits. If so again and again, it
        comes ever later, so that they make fewer and larger trips."""
        is_kept_out = reply.contended and not reply.claimed
        step = 1 if is_kept_out else -1
        self._contended = min(max(0, self._contended + step), CONTENDED_DOUBLINGS)

    def _find_pause(self, reply: Exchanged, *, has_looked: bool, is_running: bool) -> float:
        due, reason = self._poll_seconds(), Reason.POLL
        next_due = reply.next_due
        if next_due is not None and reply.contended:
            next_due *= 2**self._contended
        for soon, why in ((next_due, Reason.DUE), (reply.next_look, Reason.SEARCH)):
            if soon is not None and soon < due:
                due, reason = soon, why
        if has_looked:
            self._look_at += due
        if (is_running or self._is_announced()) and self._look_every < due:
            due, reason = self._look_every, Reason.CHECK  # the messenger may also fall silent
        return self._wait(max(PAUSE_SECONDS_MIN, due), reason)

    def _poll_seconds(self) -> float:
        if self._is_announced():
            return self._poll * POLL_FACTOR_WITH_MESSENGER
        return self._poll * POLL_FACTOR_WHERE_SHOWN if self._is_shown() else self._poll

    def _is_shown(self) -> bool:
        """Whether each new job is noticed without a notification."""
        health = None if self._wakeup is None else self._wakeup.health
        return self._drawn is not None or (health is not None and health.sees_all and health.good)

    def _is_announced(self) -> bool:
        return self.inbox is not None and self.inbox.healthy
