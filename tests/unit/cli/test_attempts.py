"""The short facts of a crash report, as ``outlast job ID`` shows them."""

from __future__ import annotations

import msgspec

from outlast.cli.dead import find_cause
from outlast.cli.show import when
from outlast.insight.facts import facts_of_crash
from outlast.insight.sentences import describe_last_end
from outlast.model.crash import Crash, CrashKind, MemoryEvidence
from outlast.model.job import State
from outlast.store.rows import AttemptRow
from tests.cases import each_case
from tests.unit.insight.rows_kit import NOW, job, running

MIB = 1024 * 1024
ATTEMPT = AttemptRow(
    job_id=1, token=1, number=1, outcome="", charge="failure", started_at=0.0, ended_at=1.0
)


def facts(**fields: object) -> dict[str, str]:
    crash = Crash(kind=CrashKind.OUT_OF_MEMORY, **fields)  # type: ignore[arg-type]
    return {fact.label: fact.text for fact in facts_of_crash(crash, ATTEMPT)}


def test_an_oom_kill_is_shown_with_its_numbers_and_not_as_proof():
    seen = MemoryEvidence(
        source="cgroup",
        limit_bytes=250 * MIB,
        peak_bytes=249 * MIB,
        oom_kills_before=3,
        oom_kills_after=4,
        cgroup="/sys/fs/cgroup/pod",
    )
    assert facts(memory=seen)["memory"] == (
        "the kernel has killed in its cgroup /sys/fs/cgroup/pod: 3 times before, 4 after;"
        " limit 250 MiB, peak 249 MiB (evidence, not proof: the cgroup is shared)"
    )


def test_a_kill_by_the_worker_for_memory_is_shown_with_its_numbers():
    seen = MemoryEvidence(source="max_rss", rss_bytes=310 * MIB, limit_bytes=200 * MIB)
    shown = "its runner had 310 MiB, far above its max_rss of 200 MiB; killed by its worker"
    assert facts(memory=seen)["memory"] == shown


def test_unknown_fields_are_left_out():
    seen = MemoryEvidence(source="cgroup", oom_kills_before=0, oom_kills_after=1)
    assert "limit" not in facts(memory=seen)["memory"]
    assert "memory" not in facts()


@each_case(("seconds", "words"), [(0.2, "for a moment"), (32.0, "for 32 s"), (250.0, "for 4 min")])
def test_the_duration_of_a_running_job_is_shown_as_text(seconds: float, words: str) -> None:
    row = running(started_at=NOW - seconds)
    assert when(row, NOW) == words


def test_why_and_the_list_of_dead_jobs_say_where_a_process_died():
    stacks = (
        'Fatal Python error\n\nCurrent thread 0x1:\n  File "/srv/sci/sim.py", line 16 in simulate'
    )
    crash = Crash(kind=CrashKind.SIGNALLED, message="killed by SIGSEGV", stacks=stacks)
    one = msgspec.structs.replace(ATTEMPT, outcome="signalled", message=crash.message, crash=crash)
    (said,) = describe_last_end([one])
    assert said == "Attempt 1 ended as signalled: killed by SIGSEGV, at sci/sim.py:16 in simulate."
    row = job(state=State.DEAD)
    assert find_cause(row, one) == "signalled: killed by SIGSEGV, at sci/sim.py:16 in simulate"
    error = msgspec.structs.replace(one, crash=Crash(kind=CrashKind.ERROR, traceback=stacks))
    assert find_cause(row, error) == "signalled: killed by SIGSEGV"
