"""Run a call in this process: without a crash, then once for each case, and compare the ends."""

from __future__ import annotations

import asyncio
import os
import random  # noqa: TID251  # the task's own numbers are the same in each run
import subprocess
import sys
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qs, urlsplit

import msgspec

from outlast.base.config import default_runners
from outlast.base.sync import run_in_background
from outlast.client.app import App
from outlast.client.task import Call
from outlast.errors import ConnectionMismatch, OutlastError, UsageError, describe, text_of
from outlast.insight.calls import describe_call
from outlast.model.job import ENDED, State
from outlast.runner.application import load_app, load_function
from outlast.store.backend import describe_place, file_of
from outlast.store.rows import JobFilter, StoredJob
from outlast.testing.app_under_test import JOBS_MAX, TravelClock, empty, isolate, url_of_file
from outlast.testing.crashes.cases import Case, CrashFinding, CrashReport, Fate, Point
from outlast.testing.crashes.confine import ANSWER
from outlast.testing.crashes.copies import Copy, Tell
from outlast.testing.crashes.end_state import (
    COMPARED,
    Difference,
    Effect,
    EndState,
    compare,
    describe_mask,
    find_mask,
    read_files,
)
from outlast.testing.crashes.folder import RunFolder
from outlast.testing.crashes.process import CrashAnswer, Request
from outlast.testing.crashes.recorder import Recorder, Trace
from outlast.testing.crashes.remedies import find_remedy
from outlast.testing.crashes.watch import CHECKPOINT, LEASE, CrashAttempt, CrashWatch, last_line
from outlast.testing.drain import drain

RUN_SECONDS = 60.0  # the longest time for the attempts of one run
ROUNDS_MAX = 50  # drains of one run: one after each pause of the job
OUTSIDE_MAX = 10
TIMES_MAX = 3  # of the counts of an effect, those that one row of the table shows
_HINTS = (
    "--copy names a file that it reads",
    "the sandbox refuses to write elsewhere and to connect: --allow-connect PORT allows a port",
)
_NO_STORE_ON_SERVER = (
    "here the store is a SQLite file: connect to app.url, which SQLAlchemy can; or let a test with"
    " the fixture outlast_postgres kill the worker (crash_after_save, deliver_twice)"
)
_LEAVES_NOTHING = {Fate.KILLED: {"report", "begin"}, Fate.LEASE_LOST: {"report"}}
_DEADLY = {Fate.KILLED, Fate.TWICE}


class _Run(NamedTuple):
    end: EndState
    trace: Trace
    ignores_checkpoint: bool


def main(told: dict[str, Any]) -> None:
    """Run a request in this process, which is for nothing else; leave the answer in the folder."""
    request = msgspec.convert(told, Request)
    try:
        verdict = CrashAnswer(report=_answer(request))
    except OutlastError as error:
        verdict = CrashAnswer(error=text_of(error))
    except Exception as error:
        traceback.print_exc()
        verdict = CrashAnswer(error=describe(error))
    Path(request.folder, ANSWER).write_bytes(msgspec.json.encode(verdict))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # wait for no thread that the application has started


def _answer(request: Request) -> CrashReport:
    origin = Path.cwd()
    folder = RunFolder(Path(request.folder), request.allow_command)
    folder.observe()
    app = load_app(request.app)
    make = load_function(request.call)
    file = file_of(app.url)
    _check_store(app.url, request)
    folder.store = "outlast.db" if file is None else os.path.relpath(file, origin)
    if folder.store.startswith(os.pardir):
        folder.store = Path(folder.store).name
    folder.observe_jobs(app)
    store = folder.template / folder.store
    store.parent.mkdir(parents=True, exist_ok=True)
    with isolate(app, url_of_file(store)), chdir(folder.template):
        run_in_background(lambda: app.stores.ask(empty))
        call = make(**request.arguments)
        if not isinstance(call, Call):
            raise UsageError(f"{request.call} must return task.call(…), not {call!r:.80}")
    return _Runs(app, call, folder, request).explore()


def _check_store(url: str, request: Request) -> None:
    """Refuse an allowed port that may be that of the application's own store."""
    if file_of(url) is not None or request.test_store:
        return
    if request.sandbox and not may_reach(url, request.allow_connect):
        return
    raise UsageError(
        f"the application's own store, {describe_place(url)}, could be reached: name another one,"
        " or say with --test-store that it is for tests"
    )


def may_reach(url: str, ports: Sequence[int]) -> bool:
    """Whether one of the ports may be this server's: its URL names it, or omits a host's port."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    named = [each.rpartition(":")[2] for each in hosts if not each.endswith("]")]
    named += [each for value in parse_qs(parts.query).get("port", ()) for each in value.split(",")]
    known = {int(each) for each in named if each.isdecimal()}
    return bool(ports) and (len(known) < len(hosts) or not known.isdisjoint(ports))


@dataclass(frozen=True)
class _Runs:
    app: App
    call: Call[Any]
    folder: RunFolder
    request: Request

    def explore(self) -> CrashReport:
        """Run it without a crash, in each case, and without a crash again: differences between the
        two runs without a crash, such as times, are not compared."""
        point, points_max = self.request.point, self.request.points_max
        (base,) = self._run_all([None])
        self._check_plain(base)
        points = base.trace.points
        if point is not None and not 0 <= point <= len(points):
            raise UsageError(f"there is no point {point}: the task has {len(points)}")
        cases = list(self._choose(base, point, points_max))
        *runs, again = self._run_all([*cases, None], base)  # the last one: times differ, if ever
        self._check_plain(again)
        mask = find_mask(base.end, again.end)
        report = CrashReport(
            task=self.call.task.name, seed=self.request.seed, points=points, runs=len(cases) + 2
        )
        if base.trace.failures:
            report.notes.append(f"without a crash an attempt failed, too: {base.end.error}")
        outside = sorted(set().union(*(run.trace.outside for run in (base, *runs))))
        refused = "refused" if self.request.sandbox else "not compared"
        report.notes += [f"{refused}, since outside: {each}" for each in outside[:OUTSIDE_MAX]]
        met = list(zip(cases, runs, strict=True))
        report.notes += describe_mask(mask, base.end.columns)
        report.notes += _describe_missed(met, points)
        if len(points) > points_max and point is None:
            report.notes.append(f"{points_max} of {len(points)} points were tried")
        store = self.folder.store
        report.findings = _find(base, met, mask, store)
        return report

    def _run_all(self, cases: Sequence[Case | None], base: _Run | None = None) -> list[_Run]:
        """Return a run of each case, in order, each in a copy of this process, so that none finds
        memory of another; several at once, unless they could disturb each other."""
        asked = self.request
        is_shared = asked.allow_connect or asked.allow_command or asked.reset or asked.compare
        started = (Copy(partial(self._run, case)) for case in cases)
        under_way = deque(islice(started, 1 if is_shared else default_runners()))
        runs = []
        try:
            while under_way:
                run = under_way[0].result()
                run.end.share((base or run).end)
                runs.append(run)
                under_way.popleft()
                under_way.extend(islice(started, 1))
        finally:
            for each in under_way:
                each.end()
        return runs

    def _choose(self, base: _Run, point: int | None, points_max: int) -> Iterator[Case]:
        """Yield the cases, without those that are the same as another: if nothing is left behind
        between two points, a crash at the second. Only a task that can notice is asked to stop."""
        count = len(base.trace.points)
        step = -(-count // points_max) or 1
        numbers = range(1 + self.request.seed % step, count + 1, step) if point is None else [point]
        fates = [Fate.KILLED, Fate.LEASE_LOST]
        if self.call.task.is_async or base.trace.may_stop:
            fates += [Fate.DRAINED, Fate.CANCELLED]
        for number in numbers:
            before = base.trace.points[number - 2].kind if point is None and number > 1 else ""
            for fate in fates if number else ():
                if before not in _LEAVES_NOTHING.get(fate, ()):
                    yield Case(fate, number)
        if not point:
            yield Case(Fate.TWICE)

    def _check_plain(self, run: _Run) -> None:
        if run.end.state != State.COMPLETED:
            told = [f"without a crash the task ends {run.end.state}: {run.end.error}"]
            if ConnectionMismatch.__name__ in run.end.error:
                told.append(_NO_STORE_ON_SERVER)
            told += _HINTS if self.request.sandbox else _HINTS[:1]
            raise UsageError("\n".join(told))

    def _run(self, case: Case | None, _: Tell) -> _Run:
        app, recorder, clock = self.app, Recorder(), TravelClock()
        watch = CrashWatch(app, case, recorder, clock)
        random.seed(self.request.seed)
        with self.folder.enter(recorder):
            self._command("reset")
            store = url_of_file(self.folder.path / self.folder.store)
            with app.stores.replace(store, clock), watch.ends(app):
                if case is not None and case.fate in _DEADLY:
                    recorder.trace = Copy(partial(self._begin_to_die, watch, clock)).result()
                    clock.ahead = recorder.trace.ahead
                else:
                    self._enqueue(recorder.trace)
                stored, others = self._drain(watch, clock)
            end = read_files(self.folder.path, self.folder.path / self.folder.store)
            if lines := self._command("compare"):
                end.effects["commit", COMPARED, "lines"] = Counter((each,) for each in lines)
        trace = recorder.trace
        if trace.refused:
            raise UsageError(trace.refused[0])
        end.state = "unfinished" if stored.state not in ENDED else stored.state.value
        end.error = trace.failures[-1].message or "" if trace.failures else ""
        end.count("request", trace.requests)
        calls = (f"{each.task}({describe_call(each.task, each.args)})" for each in others)
        end.count("enqueue", Counter(calls))
        return _Run(end, trace, watch.ignores_checkpoint)

    def _command(self, name: str) -> list[str]:
        """Run a command of the user's, if there is one; return the lines that it prints."""
        command = getattr(self.request, name)
        if command is None:
            return []
        shell = ["/bin/sh", "-c", command]
        done = subprocess.run(
            shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise UsageError(
                f"--{name} exited with {done.returncode}: {done.stderr.strip()[-500:]}"
            )
        return done.stdout.splitlines()

    def _enqueue(self, trace: Trace) -> None:
        (job,) = run_in_background(lambda: self.app.enqueue_many([self.call]))
        trace.job_id = job.id

    def _begin_to_die(self, watch: CrashWatch, clock: TravelClock, die: Tell) -> Trace:
        """In a copy of this process: run the job until the copy is killed, or to its end."""

        def die_now() -> NoReturn:
            watch.trace.ahead = clock.ahead
            die(watch.trace)

        watch.die = die_now
        self._enqueue(watch.trace)
        self._drain(watch, clock)
        watch.trace.ahead = clock.ahead
        return watch.trace

    def _drain(self, watch: CrashWatch, clock: TravelClock) -> tuple[StoredJob, list[StoredJob]]:
        app, job_id = self.app, watch.trace.job_id

        async def work() -> list[StoredJob]:
            await asyncio.wait_for(drain(app, watch, 1, CrashAttempt), RUN_SECONDS)
            store = await app.stores.store()
            return await store.inspector.jobs(JobFilter(limit=JOBS_MAX))

        for rounds_left in reversed(range(ROUNDS_MAX)):
            try:
                jobs = run_in_background(work)
            except TimeoutError:
                raise UsageError(
                    f"a run has not ended after {RUN_SECONDS:g} s: {watch.describe()} (threads that"
                    " the import started do not run in it)"
                ) from None
            (job,) = [each for each in jobs if each.id == job_id]
            if job.state in ENDED or not rounds_left:
                return job, [each for each in jobs if each.id != job_id]
            clock.ahead += max(0.0, job.run_at - clock.wall()) + 1.0
        raise AssertionError


def _describe_missed(runs: Sequence[tuple[Case, _Run]], points: Sequence[Point]) -> list[str]:
    """Say which cases did not happen, and whether the points were the same in all runs."""
    notes = []
    locked = [case.point for case, run in runs if run.trace.locked]
    if locked:
        at = ", ".join(str(each) for each in locked)
        notes.append(f"no lease can be lost at {at}: the task's own transaction locks the store")
    missed = [case for case, run in runs if not run.trace.happened]
    if missed:
        notes.append(f"did not happen: {', '.join(str(case) for case in missed)}")
    if any(run.trace.points != points[: len(run.trace.points)] for _, run in runs):
        notes.append("the points differ between runs: the task does not do the same each time")
    return notes


def _find(
    base: _Run, runs: Sequence[tuple[Case, _Run]], mask: dict[Effect, list[int]], store: str
) -> list[CrashFinding]:
    """Return the differences; one effect of several cases is one finding."""
    found: dict[tuple[str, str, str], CrashFinding] = {}
    for case, run in runs:
        for difference in (*compare(base.end, run.end, case.fate, mask), *_misbehaves(case, run)):
            effect, is_job = difference.effect, difference.kind == "job"
            lines = run.trace.lines | base.trace.lines
            line = last_line(run.trace.failures) if is_job else lines.get(effect, "")
            key = (effect, line, difference.times if is_job else "")
            finding = found.setdefault(key, CrashFinding(effect, "", line, ""))
            finding.cases.append(case)
            finding.remedy = find_remedy(
                difference,
                {each.fate for each in finding.cases},
                saves=CHECKPOINT in base.trace.lines,
                in_store=difference.database == store,
            )
            told = finding.times.split("; ") if finding.times else []
            if difference.times not in told and len(told) < TIMES_MAX:
                finding.times = "; ".join([*told, difference.times])
    return list(found.values())


def _misbehaves(case: Case, run: _Run) -> Iterator[Difference]:
    if run.trace.went_on:
        yield Difference("lease", LEASE, "goes on")
    if case.fate is Fate.KILLED and run.ignores_checkpoint:
        yield Difference("checkpoint", CHECKPOINT, "never read")
