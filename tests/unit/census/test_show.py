"""The display of the demo: the bar, the panel, the timeline, and its look at the store."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from rich.console import Console

from examples.census.show import BAR, PANEL, LiveShow, PlainShow, bar, panel, show_on, timeline
from examples.census.watch import Observation, Watch
from outlast.model.crash import Progress
from outlast.model.job import Policy, State
from outlast.store.rows import AttemptRow, StoredJob, WorkerRow, WorkerStatus
from tests.cases import each_case

GOAL = 40


def job(state: State = State.RUNNING, **facts: Any) -> StoredJob:
    return StoredJob(
        **{
            "id": 7, "task": "t", "queue": "q", "state": state, "priority": 0, "attempt_count": 1,
            "failures": 0, "losses": 0, "token": 3, "waiting": False, "args": "{}",
            "policy": Policy(), "run_at": 100.0, "enqueued_at": 100.0, "worker": "amber",
            "worker_id": 1, "host": "h", "started_at": 101.0, **facts,
        }
    )  # fmt: skip


def worker(name: str, status: WorkerStatus = WorkerStatus.ACTIVE, **facts: Any) -> WorkerRow:
    return WorkerRow(
        **{
            "id": 1, "name": name, "host": "h", "pid": 4711, "status": status, "epoch": 1,
            "beat": 1, "heartbeat": 2.0, "lease": 60.0, "queues": [], "tasks": ["t"],
            "running": 0, "started_at": 0.0, "heartbeat_at": 0.0, "lease_expires_at": 60.0, **facts,
        }
    )  # fmt: skip


def lost(token: int = 3, **facts: Any) -> AttemptRow:
    return AttemptRow(
        job_id=7, token=token, number=1, outcome="lost_worker", charge="loss", started_at=101.0,
        ended_at=104.0, worker="amber", **facts,
    )  # fmt: skip


def look(
    row: StoredJob | None, attempts: list[AttemptRow] | None = None, **facts: Any
) -> Observation:
    workers = {"amber": worker("amber"), "violet": worker("violet")}
    return Observation(
        **{
            "at": 50.0, "goal": GOAL, "job": row, "attempts": attempts or [], "starts": {3: 0},
            "workers": workers, "silence": {"amber": 0.4, "violet": 1.9}, **facts,
        }
    )  # fmt: skip


def half_done(**facts: Any) -> StoredJob:
    progress = Progress(fraction=0.55, stage="slowed to 0.10 s a commit", message="commit 22")
    return job(progress=progress, checkpoint='{"commit": 20, "samples": []}', **facts)


def shown(thing: Any, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(thing)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_a_look_distinguishes_saved_from_done_commits():
    seen = look(half_done())
    assert (seen.saved, seen.done, seen.holder) == (20, 22, "amber")


def test_progress_may_lag_behind_the_checkpoint():
    row = job(progress=Progress(fraction=0.25), checkpoint='{"commit": 15}')
    assert look(row).done == 15


def test_the_bar_is_as_wide_before_as_at_the_end():
    for row in (job(), half_done(), job(State.COMPLETED)):
        assert bar(look(row)).cell_len == BAR
    ended = bar(look(job(State.COMPLETED)))
    assert {str(span.style) for span in ended.spans if span.end > span.start} == {"green"}


@each_case("width", [20, 60, 80, 200])
def test_the_panel_fits_any_terminal(width):
    rows = [None, job(State.QUEUED, token=None, worker=None), half_done(), job(State.COMPLETED)]
    for row in rows:
        lines = shown(panel(look(row), {}), width).splitlines()
        assert max(map(len, lines)) <= min(width, PANEL)


def test_the_panel_shows_both_workers_and_the_job():
    said = shown(panel(look(half_done()), {}))
    assert "● amber" in said
    assert "● violet" in said
    assert "4711" in said
    assert "1.9 s ago" in said
    assert "job 7 running" in said
    assert "22 of 40 commits" in said
    assert "▲ checkpoint: commit 20" in said
    assert "slowed to 0.10 s a commit" in said


def test_a_killed_worker_is_unnoticed_until_the_store_says_lost():
    assert "killed 0.5 s ago, unnoticed" in shown(panel(look(half_done()), {"amber": 49.5}))
    workers = {"amber": worker("amber", WorkerStatus.LOST), "violet": worker("violet")}
    said = shown(panel(look(half_done(), workers=workers), {"amber": 49.5}))
    assert "lost" in said
    assert "killed" not in said


def test_a_worker_without_a_row_is_starting():
    assert shown(panel(look(None, workers={}), {})).count("starting") == 2


def ended() -> Observation:
    row = job(
        State.COMPLETED, token=4, attempt_count=2, worker="violet", started_at=104.5, ended_at=108.0
    )
    return look(row, [lost()], starts={3: 0, 4: 20})


def test_the_timeline_has_every_attempt():
    first, second = (line.split() for line in shown(timeline(ended(), width=80)).splitlines()[3:5])
    assert first == ["1", "3", "amber", "lost_worker", "+1.00", "s", "3", "s", "the", "beginning"]
    assert second == ["2", "4", "violet", "completed", "+4.50", "s", "3.5", "s", "commit", "20"]


def test_no_attempt_is_cut_on_eighty_columns_however_long_its_token():
    token = 1795557954441109
    row = job(
        State.COMPLETED, token=token, attempt_count=2, worker="violet", started_at=304.5,
        ended_at=608.25,
    )  # fmt: skip
    seen = look(row, [lost(token - 1)], starts={token - 1: 0, token: 1_000})
    said = shown(timeline(seen, width=80), 80)
    assert "…" not in said
    assert "lost_worker" in said


def test_a_wide_terminal_gets_the_attempts_drawn_to_scale():
    first, second = shown(timeline(ended(), width=120)).splitlines()[3:5]
    assert first.rstrip().endswith("━")
    assert second.index("━") > first.rindex("━")
    assert "━" not in shown(timeline(ended(), width=80))


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def test_a_terminal_gets_the_live_view_and_ci_and_pipes_do_not(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert type(show_on(console(terminal=True))) is LiveShow
    assert type(show_on(console(terminal=False))) is PlainShow
    monkeypatch.setenv("CI", "true")
    assert type(show_on(console(terminal=True))) is PlainShow


def test_plain_lines_report_progress_at_intervals():
    pipe = console(terminal=False)
    with PlainShow(pipe) as show:
        for done in range(GOAL + 1):
            show.update(look(job(checkpoint=f'{{"commit": {done}}}')), {})
        show.update(look(job(State.COMPLETED)), {})
    lines = pipe.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[2] for line in lines] == ["8", "16", "24", "32", "40"]


class Pretended:
    """An inspector that returns given rows."""

    def __init__(self) -> None:
        self.row = job(State.QUEUED, token=None, worker=None)
        self.worker = worker("amber")

    async def job(self, job_id: int) -> StoredJob:
        return self.row

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        return []

    async def workers(self) -> list[WorkerRow]:
        return [worker("amber", pid=1), self.worker, worker("stranger")]


class Clock:
    now = 10.0

    def boot(self) -> float:
        return self.now


def watching() -> tuple[Watch, Pretended, Clock]:
    store, clock = Pretended(), Clock()
    watch = Watch(store, GOAL, clock=clock)  # type: ignore[arg-type]
    watch.pids, watch.job_id = {"amber": 4711}, 7
    return watch, store, clock


async def test_an_attempt_began_where_the_checkpoint_stood_before_it():
    watch, store, _ = watching()
    assert (await watch.look()).starts == {}
    store.row = job(token=3)
    assert (await watch.look()).starts == {3: 0}
    store.row = job(token=3, checkpoint='{"commit": 20}')
    await watch.look()
    store.row = job(token=9, checkpoint='{"commit": 25}')  # it has saved once more already
    assert (await watch.look()).starts == {3: 0, 9: 20}


async def test_silence_is_counted_from_the_last_seen_beat():
    watch, store, clock = watching()
    assert (await watch.look()).silence == {"amber": 0.0}
    clock.now = 11.5
    assert (await watch.look()).silence == {"amber": 1.5}
    store.worker = msgspec.structs.replace(store.worker, beat=2)
    assert (await watch.look()).silence == {"amber": 0.0}


async def test_only_the_demos_own_workers_are_looked_at():
    watch, _, _ = watching()
    seen = await watch.look()
    assert {name: row.pid for name, row in seen.workers.items()} == {"amber": 4711}
