"""Leases in ticks, with the real ``Trust``, ``Observer`` and ``PresenceObserver``.

The exploration of jobs relies on what is explored here: no worker is found gone by silence while it
trusts its lease, and no worker that beats is found gone at all. Times are ages, in ticks of a
quarter of a heartbeat; what may take any time takes each length in some state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from outlast.model import lease
from outlast.model.lease import LeaseTerms, Presence, Sign

BEAT = 4
TERMS = LeaseTerms(heartbeat=float(BEAT), lease=3.0 * BEAT)
LEASE = 3 * BEAT
OLD = LEASE + 1  # an age that means: any longer
NOW = 1_000.0

Move = tuple[str, Any, str]  # words, the next state, and what is wrong with it
Look = tuple[int, int, bool] | None  # ages of since and of the last look; is the counter the same?


class Trusting(NamedTuple):
    """One worker, whose beats may take any time, and one observer, who may look at any time.
    ``asked``: age of the trust; ``sent``: of a beat under way, and whether it has arrived;
    ``late``: one that was given up may still arrive."""

    asked: int = 0
    sent: tuple[int, bool] | None = None
    late: bool = False
    seen: Look = None


def trusting(state: Trusting) -> Iterator[Move]:
    """No worker is found silent before the end of its own trust, however slow its beats are."""
    sent = state.sent
    aged = None if sent is None else (min(OLD, sent[0] + 1), sent[1])
    older = Trusting(min(OLD, state.asked + 1), aged, state.late, _aged(state.seen))
    yield "a tick", older, ""
    trust = _trust(state.asked)
    if sent is None and trust.holds(NOW):
        yield "it asks for a beat", state._replace(sent=(0, False)), ""
    if sent is not None and not sent[1]:
        after = state._replace(sent=(sent[0], True), seen=_moved(state.seen))
        yield "the beat arrives", after, ""
        yield "it gives the beat up", state._replace(sent=None, late=True), ""
    if sent is not None and sent[1]:
        trust.renewed(NOW - sent[0])
        asked = min(OLD, round(NOW - trust.asked_at))
        yield "the answer comes", state._replace(asked=asked, sent=None), ""
        yield "the answer is lost", state._replace(sent=None), ""
    if state.late:
        yield "a late beat arrives", state._replace(late=False, seen=_moved(state.seen)), ""
    gone, seen = _observed(state.seen)
    early = gone and _trust(state.asked).kill_at > NOW
    wrong = f"found silent {state.asked} ticks after it asked" if early else ""
    yield "a look" + (": gone" if gone else ""), state._replace(seen=seen), wrong


class Beating(NamedTuple):
    """One worker that beats at least once in each heartbeat while the store is there; a beat that
    is due when it comes back lands before it goes away again. ``landed``: age of the last beat."""

    landed: int = 0
    up: bool = True
    seen: Look = None


def beating(state: Beating) -> Iterator[Move]:
    """No worker that beats is found silent, also when the store stalls for as long as does
    not count as a gap between two looks."""
    if not state.up or state.landed < BEAT:
        older = state._replace(landed=min(OLD, state.landed + 1), seen=_aged(state.seen))
        yield "a tick", older, ""
    if not state.up:
        yield "the store is back", state._replace(up=True, landed=BEAT), ""
        yield "a look fails", state._replace(seen=None), ""
        return
    yield "a beat lands", Beating(0, state.up, _moved(state.seen)), ""
    if state.landed < BEAT:
        yield "the store stands still", state._replace(up=False), ""
    gone, seen = _observed(state.seen)
    yield "a look", state._replace(seen=seen), "found silent although it beats" if gone else ""


class Present(NamedTuple):
    """As ``Beating``, seen by presence. The lock may be absent at any time; ``asked``: a look under
    way: its age, and what it has seen, if it has got that far: absent, and the same counter."""

    landed: int = 0
    up: bool = True
    seen: Look = None
    asked: tuple[int, tuple[bool, bool, bool] | None] | None = None


def present(state: Present) -> Iterator[Move]:
    """No worker that beats is found gone by presence: in every state of its lock, however long a
    look takes, and for each pause of the store that does not count as a gap."""
    asked = state.asked
    if not state.up or state.landed < BEAT:
        age = None if asked is None else (min(OLD, asked[0] + 1), asked[1])
        yield "a tick", Present(min(OLD, state.landed + 1), state.up, _aged(state.seen), age), ""
    if not state.up:
        yield "the store is back", state._replace(up=True, landed=BEAT), ""
        yield "a look fails", state._replace(seen=None, asked=None), ""
        return
    yield "a beat lands", _landed(state), ""
    if state.landed < BEAT:
        yield "the store stands still", state._replace(up=False), ""
    if asked is None:
        yield "a look is asked for", state._replace(asked=(0, None)), ""
    elif asked[1] is None:
        for absent in (True, False):
            words = f"it sees the lock {'absent' if absent else 'held'}"
            same = state.seen is None or state.seen[2]
            yield words, state._replace(asked=(asked[0], (absent, same, False))), ""
    else:
        gone, seen = _looked(state.seen, asked[0], *asked[1])
        counter_stands = not asked[1][2]  # otherwise the reap changes nothing
        wrong = "reaped by presence although it beats" if gone and counter_stands else ""
        yield "the look is answered", state._replace(seen=seen, asked=None), wrong


def reachable(first: Any, moves: Callable[[Any], Iterator[Move]]) -> tuple[int, str, list[str]]:
    """Go through all states; return their number, what is wrong, and the moves that lead there."""
    came: dict[Any, tuple[Any, str]] = {first: (None, "")}
    frontier = [first]
    for state in frontier:  # grows while it is read: breadth first
        for words, after, wrong in moves(state):
            if wrong:
                return len(came), wrong, [*_way(came, state), words]
            if after not in came:
                came[after] = (state, words)
                frontier.append(after)
    return len(came), "", []


LEASES: dict[str, tuple[Any, Callable[[Any], Iterator[Move]]]] = {
    "trusting": (Trusting(), trusting),
    "beating": (Beating(), beating),
    "present": (Present(), present),
}


def _way(came: dict[Any, tuple[Any, str]], state: Any) -> list[str]:
    words: list[str] = []
    while came[state][1]:
        state, each = came[state]
        words.insert(0, each)
    return words


def _trust(age: int) -> lease.Trust:
    return lease.Trust(TERMS, NOW - age)


def _aged(seen: Look) -> Look:
    return None if seen is None else (min(OLD, seen[0] + 1), min(OLD, seen[1] + 1), seen[2])


def _moved(seen: Look) -> Look:
    return None if seen is None else (seen[0], seen[1], False)


def _landed(state: Present) -> Present:
    asked = state.asked
    if asked is not None and asked[1] is not None:
        asked = (asked[0], (*asked[1][:2], True))
    return Present(0, state.up, _moved(state.seen), asked)


def _observed(seen: Look) -> tuple[bool, Look]:
    """Let the real observer look once."""
    observer = lease.Observer()
    if seen is not None:
        observer._watched[1] = watched = lease._Watched(7, NOW - seen[0])
        watched.looked_at = NOW - seen[1]
    gone = observer.look(NOW, [Sign(1, 7 if seen is None or seen[2] else 8, *_terms())])
    after = observer._watched[1]
    return bool(gone), (_age(after.since), _age(after.looked_at), True)


def _looked(seen: Look, asked: int, absent: bool, same: bool, moved: bool) -> tuple[bool, Look]:
    """Let the real observer of presence look once; the answer has just come."""
    observer = lease.PresenceObserver()
    if seen is not None:
        observer._absent[1] = lease._Absent(7, "i", NOW - seen[0], NOW - seen[1])
    presence = Presence.ABSENT if absent else Presence.HELD
    sign = Sign(1, 7 if same else 8, *_terms(), presence, "i")
    gone = observer.look(NOW - asked, NOW, [sign])
    after = observer._absent.get(1)
    if after is None:
        return bool(gone), None
    return bool(gone), (_age(after.since), _age(after.looked_at), not moved)


def _terms() -> tuple[float, float]:
    return TERMS.heartbeat, TERMS.lease


def _age(at: float) -> int:
    return min(OLD, round(NOW - at))
