"""Leases from both sides: the holder stops trusting before any observer may act."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import ConfigError
from outlast.model.lease import DeathCause, LeaseTerms, Observer, Sign, Trust
from tests.cases import each_case

TERMS = LeaseTerms(heartbeat=2.0, lease=60.0)


def sign(beat: int, worker_id: int = 1, heartbeat: float = 2.0, lease: float = 60.0) -> Sign:
    return Sign(worker_id, beat, heartbeat, lease)


def look(observer: Observer, now: float, *signs: Sign) -> list[int]:
    return [each.worker_id for each in observer.look(now, signs)]


# ------------------------------------------------------------------------------- terms


@each_case(("heartbeat", "lease"), [(0.0, 60.0), (-1.0, 60.0), (2.0, 5.9)])
def test_terms_that_cannot_work_are_refused(heartbeat, lease):
    with pytest.raises(ConfigError, match="heartbeat"):
        LeaseTerms(heartbeat=heartbeat, lease=lease)


def test_a_lease_of_three_heartbeats_is_enough():
    assert LeaseTerms(heartbeat=2.0, lease=6.0).lease == 6.0


# -------------------------------------------------------------------- causes of death


def test_every_cause_has_a_sentence_and_only_lock_file_tether_and_restart_are_proofs():
    assert all(cause.sentence for cause in DeathCause)
    assert not any("gone" in cause.sentence for cause in DeathCause), "it follows: X is gone"
    proofs = {cause for cause in DeathCause if cause.proven}
    assert proofs == {DeathCause.LOCK_FILE, DeathCause.TETHER, DeathCause.RESTARTED}


# -------------------------------------------------------------------- the holder's trust


def test_trust_counts_from_before_the_request_and_ends_before_the_lease():
    trust = Trust(TERMS, asked_at=100.0)
    assert (trust.stop_at, trust.kill_at) == (151.0, 154.0)
    assert trust.holds(150.9)
    assert not trust.holds(151.0)


def test_a_short_lease_keeps_a_tenth_for_stopping():
    trust = Trust(LeaseTerms(heartbeat=1.0, lease=6.0), asked_at=100.0)
    assert (trust.stop_at, trust.kill_at) == pytest.approx((104.8, 105.4))


def test_a_renewal_counts_from_its_request_not_its_answer():
    trust = Trust(TERMS, asked_at=100.0)
    trust.renewed(110.0)  # answered at 140, say
    assert trust.stop_at == 161.0


def test_an_answer_out_of_order_does_not_shorten_the_trust():
    trust = Trust(TERMS, asked_at=100.0)
    trust.renewed(130.0)
    trust.renewed(110.0)
    assert trust.asked_at == 130.0


def test_a_lapsed_trust_is_never_extended():
    trust = Trust(TERMS, asked_at=100.0)
    trust.renewed(151.0)
    assert trust.asked_at == 100.0
    trust.renewed(1000.0)
    assert not trust.holds(151.0)


@given(st.floats(0.01, 100), st.floats(3, 50), st.lists(st.floats(0, 1000), max_size=20))
def test_trust_never_reaches_beyond_the_lease_of_the_last_granted_renewal(beat, factor, asks):
    terms = LeaseTerms(heartbeat=beat, lease=beat * factor + 1e-6)
    trust = Trust(terms, asked_at=0.0)
    for asked_at in sorted(asks):
        lapsed = not trust.holds(asked_at)
        before = trust.stop_at
        trust.renewed(asked_at)
        assert trust.stop_at < trust.kill_at < trust.asked_at + terms.lease
        if lapsed:
            assert trust.stop_at == before


# ------------------------------------------------------------------------- the observer


def test_a_worker_is_gone_when_its_counter_stood_still_for_its_lease():
    observer = Observer()
    for now in range(60):
        assert look(observer, now, sign(7)) == []
    assert look(observer, 60.0, sign(7)) == [1]


def test_a_first_look_finds_no_worker_gone_at_any_age_of_its_row():
    assert look(Observer(), 1e9, sign(7)) == []


def test_any_change_of_the_counter_is_a_sign_of_life():
    observer = Observer()
    for now in range(200):
        beat = {0: 7, 1: 8, 2: 3, 3: 7}[now // 50]  # also a restored, lower one
        assert look(observer, now, sign(beat)) == []


def test_each_worker_is_judged_by_its_own_lease():
    observer = Observer()
    gone = [
        look(observer, now, sign(1, 1, 1.0, 10.0), sign(1, 2, 2.0, 60.0), sign(now, 3))
        for now in range(61)
    ]
    assert gone[9] == []
    assert gone[10] == [1]
    assert gone[60] == [1, 2]


def test_a_gap_between_looks_restarts_the_observation():
    observer = Observer()
    for now in range(50):
        look(observer, now, sign(7))
    assert look(observer, 109.0, sign(7)) == []
    for now in range(110, 169):
        assert look(observer, now, sign(7)) == []
    assert look(observer, 169.0, sign(7)) == [1]


def test_an_observer_that_was_cut_off_restarts():
    observer = Observer()
    for now in range(60):
        look(observer, now, sign(7))
    observer.forget()
    assert look(observer, 60.0, sign(7)) == []


def test_a_worker_missing_from_a_look_is_observed_again():
    observer = Observer()
    for now in range(59):
        look(observer, now, sign(7))
    look(observer, 59.0)
    assert look(observer, 60.0, sign(7)) == []


@given(st.floats(0.1, 20), st.floats(3, 40))
def test_a_dead_worker_is_found_by_steady_looks_within_its_lease_and_a_look(heartbeat, factor):
    lease = heartbeat * factor
    observer, step, now = Observer(), lease / 6, 0.0
    while not look(observer, now, sign(7, 1, heartbeat, lease)):
        now += step
        assert now <= lease + 2 * step
