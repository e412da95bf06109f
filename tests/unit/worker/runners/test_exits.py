"""Which attempts are charged for the death of a runner."""

from __future__ import annotations

from outlast.model.crash import MemoryEvidence
from outlast.model.job import Policy
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.worker.base import Running
from outlast.worker.runners.exits import outcome_of, suspects_of
from tests.cases import each_case
from tests.unit.worker.worker_kit import claimed, death

SEGFAULT = death(signal="SIGSEGV", stacks="File x, line 1", output=["last words"])
EXIT = death(exit_code=3)
BAD_FRAME = death(signal="SIGKILL", complaint="a malformed frame")
KILLED = death(signal="SIGKILL")
STARVED = death(
    signal="SIGKILL",
    memory=MemoryEvidence(source="cgroup", oom_kills_before=0, oom_kills_after=1),
)
BLOATED = death(signal="SIGKILL", memory=MemoryEvidence(source="max_rss", rss_bytes=9))


def begin(token: int, **fields) -> Running:
    return Running(claimed(token, **fields), token, 0.0, 0.0, losses=0)


def end_of(
    how=KILLED,
    neighbours=(),
    *,
    incident=None,
    stop=None,
    killed_for=None,
    trusted=True,
    draining=False,
) -> Outcome:
    running = begin(1, policy=Policy(timeout=5.0, stall_timeout=6.0))
    running.stop_reason = stop
    return outcome_of(
        running,
        how,
        list(neighbours),
        incident=incident,
        killed_for=killed_for,
        trusted=trusted,
        draining=draining,
    )


def word(outcome: Outcome) -> str:
    if outcome.kind is OutcomeKind.CRASHED:
        assert outcome.crash is not None
        return outcome.crash.kind.value
    return outcome.kind.value


@each_case(
    ("facts", "said"),
    [
        # alone in its runner: it is to blame
        ({"how": SEGFAULT}, "signalled"),
        ({"how": EXIT}, "exited"),
        ({"how": BAD_FRAME, "killed_for": "bad_frame"}, "exited"),
        # with others: it cannot be known
        ({"how": SEGFAULT, "neighbours": [2]}, "bystander"),
        ({"how": EXIT, "neighbours": [2]}, "bystander"),
        ({"how": BAD_FRAME, "killed_for": "bad_frame", "neighbours": [2]}, "bystander"),
        # asked to end from outside: no attempt did it, and it is bounded
        ({"how": death(signal="SIGTERM")}, "bystander"),
        ({"how": death(signal="SIGINT")}, "bystander"),
        ({"how": death(signal="SIGHUP")}, "bystander"),
        ({"how": death(signal="SIGTERM"), "draining": True}, "released"),
        ({"how": KILLED}, "signalled"),
        # memory ran out: alone it did it, also during a drain; with others it cannot be known
        ({"how": STARVED}, "out_of_memory"),
        ({"how": STARVED, "draining": True}, "out_of_memory"),
        ({"how": STARVED, "neighbours": [2]}, "bystander"),
        ({"how": BLOATED, "killed_for": "max_rss"}, "out_of_memory"),
        ({"how": BLOATED, "killed_for": "max_rss", "neighbours": [2]}, "bystander"),
        ({"how": STARVED, "trusted": False}, "lost_lease"),
        # killed by the worker because of this attempt
        ({"stop": "timeout", "killed_for": "timeout"}, "timeout"),
        ({"stop": "stalled", "killed_for": "stalled"}, "stalled"),
        ({"stop": "unresponsive", "killed_for": "unresponsive"}, "unresponsive"),
        ({"stop": "cancel", "killed_for": "cancel"}, "cancelled"),
        ({"stop": "drain", "killed_for": "drain"}, "released"),
        # killed by the worker because of a neighbour
        ({"killed_for": "timeout", "neighbours": [2]}, "released"),
        ({"killed_for": "cancel", "neighbours": [2]}, "released"),
        ({"killed_for": "drain"}, "released"),
        ({"killed_for": "stop"}, "released"),
        # asked to stop, and its neighbour's stop was the one that killed: its own reason counts
        ({"stop": "cancel", "killed_for": "timeout", "neighbours": [2]}, "cancelled"),
        # it died of itself before the worker's kill
        ({"how": SEGFAULT, "stop": "timeout"}, "signalled"),
        # another worker has closed one of them
        ({"stop": "lease_lost", "killed_for": "superseded"}, "lost_lease"),
        ({"killed_for": "superseded", "neighbours": [2]}, "released"),
        ({"killed_for": "superseded", "neighbours": [2], "trusted": False}, "lost_lease"),
        # it did not answer, and no attempt could be named
        ({"killed_for": "unanswered", "neighbours": [2]}, "bystander"),
        ({"killed_for": "unresponsive", "neighbours": [2]}, "released"),
        # the application's lifespan has failed: no attempt can be named, and a drain is free
        ({"how": EXIT, "killed_for": "lifespan"}, "bystander"),
        ({"how": EXIT, "killed_for": "lifespan", "neighbours": [2]}, "bystander"),
        ({"how": EXIT, "killed_for": "lifespan", "draining": True}, "released"),
        # the lease is lost: no retry is charged
        ({"killed_for": "lease_lost"}, "lost_lease"),
        ({"how": SEGFAULT, "trusted": False}, "lost_lease"),
        ({"stop": "timeout", "killed_for": "timeout", "trusted": False}, "lost_lease"),
        # a signal from outside during a drain is an interruption; an exit is its own fault
        ({"draining": True}, "released"),
        ({"how": SEGFAULT, "draining": True, "neighbours": [2]}, "released"),
        ({"how": EXIT, "draining": True}, "exited"),
    ],
)
def test_the_charge_follows_the_facts(facts, said):
    assert word(end_of(**facts)) == said


# ------------------------------------------------------------------------------ suspects

NAMED = """Fatal Python error: Segmentation fault

Current thread 0x0000 (most recent call first):
  File "x.py", line 3 in boom
  File "marks.py", line 30 in outlast_attempt_2
"""


def attempts(**fields) -> list[Running]:
    return [begin(token, **fields) for token in (1, 2, 3)]


def test_the_stack_of_a_fault_names_the_one_suspect():
    named = death(signal="SIGSEGV", stacks=NAMED)
    assert suspects_of(attempts(), named) == {2: 2}


def test_a_stack_without_a_fault_is_no_evidence_and_all_are_suspects():
    for how in (death(signal="SIGKILL", stacks=NAMED), death(exit_code=1, stacks=NAMED)):
        assert set(suspects_of(attempts(), how)) == {1, 2, 3}


def test_a_runner_that_was_asked_to_end_makes_no_new_suspects_and_clears_none():
    asked = death(signal="SIGTERM")
    assert suspects_of(attempts(), asked) == {}
    before = attempts(solo=1, incident=5)
    assert suspects_of(before, asked) == dict.fromkeys([1, 2, 3], 5)


def test_only_a_bystander_gets_the_incident():
    told = 1
    assert end_of(EXIT, [2], incident=told).incident == told
    assert end_of(EXIT, incident=told).incident is None
    assert end_of(KILLED, [2], incident=told, killed_for="timeout").incident is None


def test_the_report_has_the_evidence_of_the_death():
    crash = end_of(SEGFAULT, [2, 3]).crash
    assert crash is not None
    assert (crash.signal, crash.exit_code) == ("SIGSEGV", None)
    assert (crash.stacks, crash.output) == ("File x, line 1", ["last words"])
    assert (crash.rss_peak_bytes, crash.cpu_seconds) == (1, 0.1)
    assert crash.neighbours == [2, 3]
    assert crash.message == "its runner died of SIGSEGV"


def test_the_report_has_the_evidence_of_memory_and_the_message_its_numbers():
    crash = end_of(STARVED).crash
    assert crash is not None
    assert crash.memory == STARVED.memory
    assert "(kills 0 to 1, limit: unknown)" in crash.message


def test_the_message_says_how_it_died():
    assert end_of(EXIT).message == "the runner exited with 3"
    assert "it sent a malformed frame" in end_of(BAD_FRAME, killed_for="bad_frame").message
    killed = end_of(stop="timeout", killed_for="timeout")
    assert killed.message == "above its limit of 5 s; it did not stop when asked"
