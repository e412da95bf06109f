"""How often a SQLite file is polled, depending on inotify events and on what the looks find."""

from __future__ import annotations

from itertools import accumulate, pairwise

from outlast.store.sqlite.wakeup import (
    AGAIN_SECONDS,
    FIRST_SECONDS,
    POLL_SECONDS,
    REST_SECONDS,
    Pace,
)
from tests.cases import each_case


def at_rest() -> Pace:
    """A pace after a long time without anything."""
    pace = Pace()
    for _ in range(40):
        pace.note_look(told=False, changed=False)
    return pace


def test_without_events_looks_become_rare() -> None:
    assert (at_rest().pause, at_rest().ignores_events) == (REST_SECONDS, False)


def test_after_an_event_looks_follow_until_its_commit_must_be_visible() -> None:
    pace = at_rest()
    pace.note_look(told=True, changed=False)
    pauses = []
    while pace.pause < REST_SECONDS:
        pauses.append(pace.pause)
        pace.note_look(told=False, changed=False)
    assert pauses[0] == FIRST_SECONDS
    # however long the disk takes, at most half as long again passes before the next look
    since = list(accumulate(pauses))
    assert all(later <= 1.5 * sooner + 1.1 * FIRST_SECONDS for sooner, later in pairwise(since))
    assert len(pauses) < 25


@each_case(("told", "changed"), [(True, True), (False, True), (True, False)])
def test_many_events_cause_no_more_looks_than_without_inotify(told: bool, changed: bool) -> None:
    pace = at_rest()
    for _ in range(10):
        pace.note_look(told=told, changed=changed)
    for _ in range(100):
        pace.note_look(told=told, changed=changed)
        assert pace.ignores_events  # no word cuts the pause short
        assert pace.pause >= POLL_SECONDS


def test_a_single_job_does_not_make_the_pace_ignore_events() -> None:
    pace = at_rest()
    pace.note_look(told=True, changed=False)
    pace.note_look(told=False, changed=True)  # it was enqueued
    assert (pace.pause, pace.ignores_events) == (AGAIN_SECONDS, True)
    pace.note_look(told=True, changed=True)  # our own claim and completion
    assert pace.ignores_events
    pace.note_look(told=False, changed=False)
    assert not pace.ignores_events
    pace.note_look(told=True, changed=False)
    assert pace.pause == FIRST_SECONDS
