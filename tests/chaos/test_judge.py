"""The checkers of a chaos run find each violation; its plan depends on its seed alone."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.scene import boot
from outlast.model.job import Policy, State
from outlast.store.rows import StoredJob
from tests.cases import each_case
from tests.chaos import judge
from tests.chaos.enqueuer import ROLLED_BACK
from tests.chaos.judge import Failover, Run
from tests.chaos.nemesis import phases
from tests.chaos.run import Plan
from tests.chaos.story import LAST
from tests.chaos.summary import how_to_go_on


def job(job_id: int = 1, token: int = 7, **changed: Any) -> StoredJob:
    facts: dict[str, Any] = {
        "task": "steps",
        "queue": "default",
        "state": State.COMPLETED,
        "priority": 0,
        "attempt_count": 2,
        "failures": 0,
        "losses": 1,
        "waiting": False,
        "args": "[]",
        "policy": Policy(),
        "run_at": 0.0,
        "enqueued_at": 0.0,
        "result": f'{{"token": {token}}}',
    }
    return StoredJob(id=job_id, token=token, **{**facts, **changed})


def entry(event: str, at: float, token: int, **more: Any) -> dict[str, Any]:
    return {"event": event, "at": at, "job": 1, "token": token, "pid": token * 100, **more}


def run(*journal: dict[str, Any], **changed: Any) -> Run:
    facts: dict[str, Any] = {
        "accepted": {(1, None)},
        "faults": [],
        "jobs": [job()],
        "effects": [],
        "closed": {},
    }
    return Run(journal=list(journal), **{**facts, **changed})


FAMILY = (
    entry("spawned", 10.0, 5, children=[2, 3]),
    entry("start", 10.1, 6, step=0, job=2, child=[1, 0]),
    entry("start", 10.1, 8, step=0, job=3, child=[1, 1]),
    entry("gathered", 12.0, 7, missing=0),
)

GIVEN = (entry("given", 11.0, 9, job=3, tokens=[7, 8]),)
FLOW: dict[str, Any] = {
    "jobs": [job(), job(2, 8), job(3, 9, state=State.DEAD)],
    "upstream": {3: [1, 2]},
}

TOLD = (entry("outcome", 11.0, 8, said=[0.5, 3]), entry("outcome", 12.0, 9, said=[0.5, 3]))

HEALTHY = (
    entry("start", 10.0, 5, step=0),
    entry("saved", 11.0, 5, step=1, asked_at=10.9),
    entry("start", 20.0, 7, step=1),
    entry("saved", 20.5, 5, step=2, asked_at=19.9),  # asked before, its answer read late
    entry("done", 21.0, 7),
)


def test_a_healthy_run_has_no_violation() -> None:
    paid = job(2, 9, task="pays")
    healthy = run(*HEALTHY[:3], HEALTHY[4], jobs=[job(), paid], effects=[(2, 9)])
    assert list(judge.violations(healthy)) == []
    assert list(judge.stale_saves(run(*HEALTHY))) == []
    assert list(judge.violations(run(*HEALTHY[:3], *FAMILY))) == []
    assert list(judge.violations(run(*GIVEN, **FLOW))) == []
    assert list(judge.violations(run(*HEALTHY[:3], *TOLD))) == []
    dead = [job(), job(2, 8, state=State.DEAD), job(3, 9)]  # waited for however they end
    flow = {**FLOW, "jobs": dead}
    assert (
        list(judge.violations(run(entry("given", 11.0, 9, job=3, tokens=[7, None]), **flow))) == []
    )


@each_case(
    ("wrong", "word"),
    [
        (run(accepted={(1, None), (2, None)}), "LOST job 2 was accepted under the key None"),
        (run(jobs=[job(state=State.RUNNING)]), "LOST job 1 (steps) is still running"),
        (run(jobs=[job(tenant=ROLLED_BACK)]), "rolled back"),
        (run(jobs=[job(result='{"token": 5}')]), "STALE END"),
        (run(jobs=[job(task="pays")]), "DOUBLED"),
        (run(jobs=[job(task="pays")], effects=[(1, 7), (1, 7)]), "DOUBLED"),
        (run(jobs=[job(task="pays")], effects=[(1, 5), (1, 7)]), "DOUBLED"),
        (run(jobs=[job(task="pays", state=State.DEAD)], effects=[(1, 7)]), "DOUBLED"),
        (run(HEALTHY[0], HEALTHY[0]), "token 5 was begun 2 times"),
        (run(*HEALTHY, entry("saved", 22.0, 5, step=1, asked_at=21.0)), "STALE SAVE"),
        (run(*HEALTHY[:2], entry("start", 20.0, 7, step=0)), "FORGOTTEN"),
        (run(*FAMILY, entry("spawned", 12.0, 7, children=[2, 4])), "CHILDREN job 1 has [2, 3]"),
        (
            run(*FAMILY, entry("start", 10.2, 9, step=0, job=4, child=[1, 1])),
            "child 1 as jobs [3, 4]",
        ),
        (run(*FAMILY[:3], entry("gathered", 12.0, 7, missing=1)), "misses 1 results"),
        (run(*GIVEN, entry("given", 11.0, 9, job=3, tokens=[8, 7]), **FLOW), "RESULTS job 3"),
        (run(*TOLD, entry("outcome", 12.0, 9, said=[0.5, "nothing"])), "OUTCOME job 1"),
        (run(*GIVEN, entry("given", 11.0, 9, job=3, tokens=[7]), **FLOW), "RESULTS job 3"),
        (run(*GIVEN, entry("given", 11.0, 9, job=3, tokens=[None, 8]), **FLOW), "RESULTS job 3"),
    ],
)
def test_each_violation_is_found(wrong: Run, word: str) -> None:
    assert [each for each in judge.violations(wrong) if word in each]


def failed_over(*journal: dict[str, Any], **facts: Any) -> Run:
    """A run whose asynchronous standby was promoted at 15."""
    return run(*journal, failovers=[Failover(at=15.0, **facts)])


def test_what_the_database_has_lost_in_a_failover_is_excused_and_nothing_else() -> None:
    gone = run(accepted={(1, None), (2, "a")}, failovers=[Failover(at=15.0, lost={(2, "a")})])
    assert list(judge.violations(gone)) == []
    for other in ((2, "b"), (3, "a")):
        kept = msgspec.structs.replace(gone, accepted={(1, None), other})
        assert ["LOST" in each for each in judge.violations(kept)] == [True]


def test_an_attempt_begins_at_the_checkpoint_that_a_failover_has_left() -> None:
    again = entry("start", 20.0, 7, step=0)
    lost = failed_over(*HEALTHY[:2], again)
    assert list(judge.checkpoints(lost)) == []
    left = failed_over(*HEALTHY[:2], again, steps={1: 1})
    later = failed_over(HEALTHY[0], entry("saved", 16.0, 5, step=1, asked_at=15.5), again)
    for forgotten in (left, later):
        assert ["FORGOTTEN" in each for each in judge.checkpoints(forgotten)] == [True]


def test_a_pause_lasts_from_a_fault_of_the_database_to_what_is_accepted_next() -> None:
    faults = [
        {"event": "primary cut off", "at": 10.0, "halts": True},
        {"event": "primary cut off", "at": 12.0, "halts": True},
        {"event": "primary cut off", "at": 30.0, "halts": True},
        {"event": "link slow", "at": 1.0, "runners": []},
    ]
    ledger = [{"asked_at": 9.9, "at": 10.1}, {"asked_at": 15.0, "at": 16.0}]
    (pause,) = judge.pauses(run(*HEALTHY, faults=faults, ledger=ledger))
    assert (pause.event, pause.number, pause.median, pause.longest) == (
        "primary cut off",
        2,
        2.5,
        4.0,
    )


def test_a_recovery_counts_from_the_first_fault_to_the_next_start() -> None:
    hit = run(
        *HEALTHY,
        faults=[
            {"event": "phase", "at": 1.0},
            {"event": "runner killed", "at": 9.0, "runners": [500]},
            {"event": "tree killed", "at": 18.0, "runners": [400, 500]},
        ],
        closed={5: ("lost_worker", 19.5)},
    )
    late = msgspec.structs.replace(hit, closed={5: ("lost_worker", 17.5)})
    assert judge.recoveries(late) == [], "the attempt was closed before the fault"
    (seen,) = judge.recoveries(hit)
    assert (seen.event, seen.number) == ("tree killed", 1)
    assert (seen.noticed, seen.noticed_max, seen.begun, seen.begun_max) == (1.5, 1.5, 2.0, 2.0)


def test_an_effect_outside_of_the_store_may_be_done_twice_and_is_counted() -> None:
    assert judge.done_twice(run(*HEALTHY)) == 0
    assert judge.done_twice(run(*HEALTHY, entry("done", 15.0, 5))) == 1


def test_a_plan_is_the_same_for_the_same_seed_and_calm_for_a_quarter_of_the_time() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    plan = list(phases(random.Random(4), 20_000, names))
    assert plan == list(phases(random.Random(4), 20_000, names))
    assert plan != list(phases(random.Random(5), 20_000, names))
    calm = sum(not phase.steps for phase in plan) / len(plan)
    assert 0.2 < calm < 0.35  # a slow pace leaves a short phase without a deed, too
    assert {step.name for phase in plan for step in phase.steps} == set(names)


def logged(folder: Path, *lines: dict[str, Any]) -> None:
    """Write a worker's log; ``at`` is in seconds from now."""
    with (folder / "worker-0.log").open("w") as log:
        for line in lines:
            at = datetime.fromtimestamp(time.time() + line.pop("at"), UTC)
            log.write(json.dumps({**line, "level": "info", "timestamp": at.isoformat()}) + "\n")
        log.write('{"event": "cut sh')


def failure(folder: Path, *violations: str) -> Sequence[str]:
    """What is printed of it, less the times of day."""
    plan = Plan(store="sqlite", seconds=9, seed=3, folder=folder)
    return [line[16:] if line[:2] == "  " else line for line in how_to_go_on(plan, violations)]


def test_a_failure_shows_the_last_events_in_their_order_and_the_command(tmp_path: Path) -> None:
    logged(
        tmp_path,
        {"event": "attempt_started", "job_id": 7, "token": 9, "at": -50},
        {"event": "attempt_started", "job_id": 8, "token": 10, "at": -40},
        {"event": "runner_died", "pid": 5, "at": -20},
        {"event": "attempt_ended", "job_id": 7, "token": 9, "at": -10},
        {"event": "worker_stopped", "at": 0},
    )
    killed = {"event": "runner killed", "at": boot() - 30, "worker": "worker-0", "runners": [5]}
    (tmp_path / "faults").write_text(json.dumps(killed))
    started = {"event": "start", "at": boot() - 45, "job": 7, "token": 9}
    (tmp_path / "journal").write_text(json.dumps(started))
    head, *told, kept, again = failure(tmp_path, "LOST job 7 (steps) is still running")
    assert told == [
        "worker-0   attempt_started job_id=7 token=9",
        "journal    start job=7 token=9",
        "faults     runner killed worker=worker-0 runners=[5]",
        "worker-0   runner_died pid=5",
        "worker-0   attempt_ended job_id=7 token=9",
    ]
    assert (head, kept) == ("the last events:", f"kept: {tmp_path}")
    assert again == "again: python -m tests.chaos sqlite --seconds 9 --seed 3"
    assert "worker-0   worker_stopped" in failure(tmp_path, "an enqueuer ended with code 1")


def test_a_failure_shows_so_many_events_and_no_more(tmp_path: Path) -> None:
    logged(tmp_path, *({"event": "heartbeat", "n": n, "at": n - 900} for n in range(LAST + 5)))
    told = failure(tmp_path)[1:-2]
    assert len(told) == LAST
    assert told[-1] == f"worker-0   heartbeat n={LAST + 4}"


def test_runs_in_folders_of_one_name_do_not_end_each_other(tmp_path: Path) -> None:
    """As tests side by side have them: each finally ends all processes with its own mark."""
    marks = {
        Plan(store="sqlite", seconds=9, seed=3, folder=tmp_path / process / "storm").mark()
        for process in ("gw0", "gw1")
    }
    assert len(marks) == 2
