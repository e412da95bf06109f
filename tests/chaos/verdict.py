"""Reads what a chaos run has left, in the store, in files and in logs, for the judge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness.scene import ROOT, Scene, boot
from outlast.payload.payloads import Encryption, make_payloads
from outlast.store.rows import JobFilter, StoredJob
from tests.chaos import judge
from tests.chaos.nemesis import Ground, Nemesis
from tests.conformance.hostile_kit import raw

PAGE = 500
KEY = "OUTLAST_TEST_KEY"  # in the environment: payloads are encrypted


class Verdict(msgspec.Struct, kw_only=True):
    """The outcome. ``events``: counts of the events in the workers' logs, by name."""

    violations: list[str]
    jobs: Counter[str]
    tasks: Counter[str]
    done: Counter[str]
    phases: Counter[str]
    events: Counter[str]
    outcomes: Counter[str]
    recoveries: list[judge.Recovery]
    pauses: list[judge.Pause]
    failovers: int
    lost_by_database: int
    accepted: int
    attempts: int
    done_twice: int
    refused: Counter[str]
    late_by: float
    worker_starts: int
    quiet_seconds: float
    verified: str


async def verdict_of(ground: Ground, nemesis: Nemesis, quiet: float) -> Verdict:
    """Read what a run has left and judge it; ``quiet``: seconds until all jobs had ended."""
    scene, run = ground.scene, await _run_of(ground)
    refusals = await scene.store.inspector.refusals(limit=1_000)
    code, verified = await asyncio.to_thread(_verify, scene.url)
    events = Counter(line["event"] for line in log_lines(scene.folder))
    return Verdict(
        violations=[
            *judge.violations(run),
            *ground.supervisor.odd,
            *([verified] if code else []),
            *(f"a duty failed: {line}" for line in failed_duties(scene.folder)),
            *judge.blamed(events),
            *ground.timetable.violations(run.jobs),
            *(f"LIMITS {line}" for line in lines_of(scene.folder, "limits-*")),
        ],
        jobs=Counter(job.state.value for job in run.jobs),
        tasks=Counter(job.task for job in run.jobs),
        done=nemesis.done,
        phases=nemesis.phases,
        events=events,
        outcomes=Counter(outcome for outcome, _ in run.closed.values()),
        recoveries=judge.recoveries(run),
        pauses=judge.pauses(run),
        failovers=0 if ground.bed is None else len(ground.bed.failovers),
        lost_by_database=sum(len(each.lost & run.accepted) for each in run.failovers),
        accepted=len(run.accepted),
        attempts=sum(line["event"] == "start" for line in run.journal),
        done_twice=judge.done_twice(run),
        refused=Counter(each.verb for each in refusals),
        late_by=max((each.late_by or 0 for each in refusals), default=0.0),
        worker_starts=ground.supervisor.starts,
        quiet_seconds=quiet,
        verified=verified.splitlines()[-1] if verified else "",
    )


async def _run_of(ground: Ground) -> judge.Run:
    scene = ground.scene
    ledger = list(lines_of(scene.folder, "ledger-*"))
    return judge.Run(
        accepted={(line["job"], line["key"]) for line in ledger},
        ledger=ledger,
        failovers=[] if ground.bed is None else ground.bed.losses(),
        journal=list(lines_of(scene.folder, "journal")),
        faults=list(lines_of(scene.folder, "faults")),
        jobs=await _jobs(scene),
        effects=await _effects(scene.url),
        closed=await _closed(scene),
        upstream=await _upstream(scene.url),
    )


async def _jobs(scene: Scene) -> list[StoredJob]:
    jobs: list[StoredJob] = []
    while page := await scene.store.inspector.jobs(
        JobFilter(limit=PAGE, before_id=jobs[-1].id if jobs else None)
    ):
        jobs += page
    return [_readable(job) for job in jobs]


def _readable(job: StoredJob) -> StoredJob:
    """Return the job with its result as JSON."""
    key = os.environ.get(KEY)
    if key is None or job.result is None:
        return job
    payloads = make_payloads([Encryption({"chaos": key})])
    return msgspec.structs.replace(job, result=payloads.decode("result", job.result))


async def _closed(scene: Scene) -> dict[int, tuple[str, float]]:
    closed: dict[int, tuple[str, float]] = {}
    after: int | None = 0
    to_boot = boot() - time.time()
    while after is not None:
        page = await scene.store.inspector.history(after)
        for each in (attempt for job in page.jobs for attempt in job.attempts):
            closed[each.token] = each.outcome, each.ended_at + to_boot
        after = page.next_after
    return closed


async def _effects(url: str) -> list[tuple[int, int]]:
    async with raw(url) as file:
        return [(job, token) for job, token in await file.rows("SELECT job, token FROM effects")]


async def _upstream(url: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    query = (
        "SELECT job_id, upstream_id FROM outlast_dependencies WHERE place >= 0 ORDER BY 1, place"
    )
    async with raw(url) as file:
        for job_id, upstream_id in await file.rows(query):
            found.setdefault(job_id, []).append(upstream_id)
    return found


def _verify(url: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "verify", "--url", url],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def lines_of(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """Return the lines of files of JSON objects; one that a kill has cut short is left out."""
    for path in sorted(folder.glob(pattern)):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)


def log_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the events in the workers' logs."""
    return (
        line
        for line in lines_of(folder, "worker-*.log")
        if isinstance(line, dict) and "event" in line
    )


def failed_duties(folder: Path) -> Iterator[str]:
    """Return each kind of error that a duty has raised; there should be none."""
    seen = Counter(
        f"{line['duty']}: {line['error']}"
        for line in log_lines(folder)
        if line["event"] == "duty_failed"
    )
    return (f"{number}x {error}" for error, number in seen.most_common(10))
