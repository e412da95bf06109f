"""What people are told of limits."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.insight.limits import explain, limit_document, next_start, rate_text, spec_text
from outlast.model.limits import LimitSpec, Per
from outlast.store.limits import LimitRow, PermitRow, SetLimit, StreamPlace, with_own
from tests.cases import each_case

NOW = 1_000.0
PERMIT = PermitRow(id=1, name="openai", key="", running=20, used=20)
LIMIT = LimitRow(name="openai", running=20)


def told(**fields: object) -> tuple[str, str]:
    values: dict[str, object] = {"ahead": 3, "blocked_by": PERMIT}
    place = StreamPlace(**(values | {"limit": LIMIT} | fields))  # type: ignore[arg-type]
    position, sentences, moves = explain(place, NOW, tells=True) or ("", [], [])
    return position, " ".join([*sentences, *moves])


def test_a_full_limit_is_named_with_its_oldest_holder() -> None:
    position, words = told(holders=[(17, "web-1", 180.0)])
    assert position == "limited"
    assert "'openai': 20 of 20 are running; the oldest is job 17 on web-1, for 3 min" in words
    assert "3 jobs of its kind are before it" in words
    assert "outlast limits set openai --running N" in words


def test_a_rate_says_when_the_next_starts() -> None:
    open_soon = PermitRow(id=1, name="openai", key="acme", running=None, used=2, tat=1_002.0)
    position, words = told(blocked_by=open_soon, limit=LimitRow(name="openai", spacing=0.1))
    assert position == "throttled"
    assert "the rate of 'openai' of 'acme', 10/s" in words
    assert "in 2 s" in words


def test_a_cost_above_the_burst_and_a_limit_with_room_are_told() -> None:
    free = PermitRow(id=1, name="openai", key="", running=None, used=2)
    limit = LimitRow(name="openai", spacing=0.1, burst=3.0)
    position, words = told(blocked_by=free, limit=limit, cost=5.0)
    assert position == "limited"
    assert "its cost, 5, is above the burst, 3, so it never starts. `outlast limits" in words
    assert told(blocked_by=free, limit=limit) == ("", "")


def test_of_the_other_limits_those_without_room_are_told() -> None:
    rated = LimitRow(name="mails", spacing=1.0, burst=8.0)
    permit = PermitRow(id=2, name="mails", key="", running=None, used=0, tat=NOW + 4.0)
    other = StreamPlace(ahead=3, blocked_by=permit, limit=rated, cost=4.0)
    assert "mails" not in told(others=[other])[1]
    words = told(others=[msgspec.structs.replace(other, cost=7.0)])[1]
    assert "It also waits for the rate of 'mails', 1/s." in words
    assert words.endswith("allows more to run. The next starts in 3 s.")
    assert "of 'mails'" not in told(others=[other], limit=None)[1]
    assert (
        "the limit 'mails', which no"
        in told(others=[msgspec.structs.replace(other, limit=None)])[1]
    )


def test_a_hold_and_an_unknown_limit_are_told() -> None:
    held = PermitRow(id=1, name="openai", key="", running=20, used=0, held_until=1_030.0)
    assert "nothing under it starts for 30 s." in told(blocked_by=held)[1]
    by = told(blocked_by=held, throttled_by=17)[1]
    assert "starts for 30 s, because job 17 found it exhausted (Throttled)." in by
    assert "no worker's code declares" in told(limit=None)[1]


@each_case("full", [True, False])
@each_case("holder", [None, 3])
def test_who_may_not_be_told_of_others_is_told_no_count_of_them(
    full: bool, holder: int | None
) -> None:
    """The same words, however many there are."""

    def words(others: int) -> object:
        used = 20 + others if full else 0
        permit = msgspec.structs.replace(PERMIT, running=20 + others, used=used, noted=0)
        place = StreamPlace(
            ahead=others, holder=holder, blocked_by=permit, limit=LIMIT,
            holders=[(others, "w", 1.0)],
        )  # fmt: skip
        return explain(place, NOW, tells=False)

    assert words(0) == words(1) == words(7)


@each_case(
    ("spacing", "text"),
    [(0.1, "10/s"), (0.2, "5/s"), (9.0, "400/h"), (1800.0, "2/h"), (7.0, "8.571/min")],
)
def test_a_rate_is_told_in_the_unit_that_makes_it_whole(spacing: float, text: str) -> None:
    assert rate_text(spacing) == text


def test_a_spec_is_told_in_words() -> None:
    spec = LimitSpec(running=2, spacing=0.2, burst=5.0, per=Per.LIMIT_KEY)
    assert spec_text(spec) == "2 at once and 5/s (burst 5), for each limit key"


@each_case(
    ("new", "text", "fields"),
    [
        ({"running": 7}, "7 at once", {"running": 7}),
        ({"spacing": 0.1}, "10/s", {"spacing": 0.1}),
        ({"burst": 50.0}, "burst 50", {"burst": 50.0}),
    ],
)
def test_of_what_is_set_by_hand_only_that_is_told(
    new: dict[str, Any], text: str, fields: dict[str, Any]
) -> None:
    own = with_own(None, SetLimit(name="openai", **new))
    assert own is not None
    assert spec_text(own) == text
    row = LimitRow(name="openai", own=own)
    assert limit_document(row, [])["limit"]["own"] == fields


@each_case(
    ("permit", "limit", "text"),
    [
        ({"running": 2, "used": 3, "noted": 2}, {"running": 2}, "now"),
        ({"running": 2, "used": 2}, {"running": 2}, "when one ends"),
        ({"tat": NOW + 23}, {"spacing": 1.0, "burst": 10.0}, "in 14 s"),
        ({"tat": NOW + 9}, {"spacing": 1.0, "burst": 10.0}, "now"),
        ({"held_until": NOW + 60}, {"spacing": 1.0}, "held for 1 min"),
        ({"tat": NOW + 23}, {"spacing": 1.0, "held_until": NOW + 180}, "held for 3 min"),
    ],
)
def test_the_next_start_counts_what_runs_and_what_was_spent(
    permit: dict[str, float], limit: dict[str, float], text: str
) -> None:
    fields: dict[str, Any] = {"running": None, "used": 0} | permit
    row = PermitRow(id=1, name="openai", key="", **fields)
    assert next_start(row, LimitRow(name="openai", **limit), NOW) == text  # type: ignore[arg-type]
