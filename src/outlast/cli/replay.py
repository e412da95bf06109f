"""``outlast replay``: try the attempt of a flight record here, on a store that is thrown away."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from outlast.base.clock import SYSTEM
from outlast.base.config import WorkerSettings, worker_settings
from outlast.base.text import line
from outlast.cli.application import load
from outlast.cli.connect import store_at
from outlast.cli.errors import DONE, NOT_SO, say
from outlast.cli.jobs import arguments_of
from outlast.cli.loop import run_loop
from outlast.cli.options import Sandboxed, flag, option
from outlast.cli.record import RecordFile, read_record
from outlast.cli.run_task import SHOWN_MAX, check_json, run_call
from outlast.errors import UsageError
from outlast.insight.queries import read_details
from outlast.model.job import SHELL_TASK, JobFacts, State
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.payload.payloads import show_stored
from outlast.store.rows import StoredJob, WorkerStatus
from outlast.store.values import ClaimRequest, NewJob, Save

if TYPE_CHECKING:
    from outlast.client.app import App
    from outlast.insight.explanation import JobDetails
    from outlast.insight.flight import FlightRecord
    from outlast.store.protocol import Store

_FROM_RECORD = "it goes on from the checkpoint of the record"


def replay(
    file: RecordFile,
    app: Annotated[
        str | None, option("--app", "MODULE:APP", "Your application, as in shop.jobs:app.")
    ] = None,
    arg: Annotated[
        list[str] | None,
        option("--arg", "NAME=JSON", "Use this argument instead; may be repeated."),
    ] = None,
    checkpoint: Annotated[
        str | None, option("--checkpoint", "JSON", "Use this checkpoint instead.")
    ] = None,
    *,
    sandboxed: Sandboxed,
    real_effects: Annotated[
        bool, flag("--real-effects", "Let it write, connect and start programs as ever.")
    ] = False,
    stacks: Annotated[bool, flag("--stacks", "Show the stacks of all threads of a crash.")] = False,
    debug: Annotated[
        bool, flag("--pdb", "Run it in this process, and debug what it raises.")
    ] = False,
) -> None:
    """Try the attempt of a flight record again, here, in a runner of its own.

    The task gets the arguments and the checkpoint of the record, and its limits (timeout, memory)
    hold. Jobs go to a new store in a temporary directory, which is deleted afterwards, so no other
    job is touched. Kept steps run again, since a record does not hold their values. It is one
    attempt: nothing is retried.

    Nothing leaves the sandbox of `outlast crash-test`: a temporary folder with what --copy names,
    and copies of the SQLite files that the task opens. Databases on servers, and what --allow-*
    does not name, are refused. A recorded command of `outlast run` is no Python: it just runs.

    Give the values that the record hides by --arg NAME=JSON and --checkpoint JSON. The exit code is
    0 if the attempt completes, else 1, with its crash report.

    Examples:
        outlast replay job-17.json --app shop.jobs:app --copy orders.csv
        outlast replay job-17.json --app shop.jobs:app --arg 'token="test"'
        outlast replay job-17.json --app shop.jobs:app --pdb --real-effects
    """
    from outlast.testing.crashes.kept import SPEC, VARIABLE, Keep, keep

    record = read_record(file)
    row = record.details.row
    given = _arguments(arg or [])
    saved = None if checkpoint is None else check_json(checkpoint)
    _refuse_hidden(record, given, saved)
    if app is None and row.task != SHELL_TASK:
        raise UsageError(
            f"name the application that has the task {line(row.task)}: --app MODULE:APP"
        )
    application = None if app is None else load(app)
    job = _make_job(application, row, given)
    if saved is not None and application is not None:
        saved = application.stores.payloads.encode("checkpoint", saved)
    saved = row.checkpoint if saved is None else saved
    _tell_release(record)
    with tempfile.TemporaryDirectory(prefix="outlast-replay-") as folder:
        url = f"sqlite:///{Path(folder) / 'replay.db'}"
        spec = app
        if app is not None and application is not None and not real_effects:
            place = str(Path(folder, "sandbox"))
            kept = Keep(app=app, folder=place, **sandboxed.read())
            keep(application, kept)
            os.environ[VARIABLE] = msgspec.json.encode(kept).decode()  # for its runner
            spec = SPEC
        if debug:
            if application is None:
                raise UsageError("--pdb is for Python: a command runs in a process of its own")
            application.url = url
            task = application.find(row.task)
            args, kwargs = task.signature.decode(job.args)
            if saved is not None:
                saved = application.stores.payloads.decode("checkpoint", saved)
            run_call(application, task.call(*args, **kwargs), saved, debug=True)
            return
        found = _run(spec, application, url, job, saved, record)
    _show(record, found, stacks=stacks)
    raise typer.Exit(DONE if found.row.state is State.COMPLETED else NOT_SO)


def _arguments(texts: list[str]) -> dict[str, object]:
    positional, named = arguments_of(texts)
    if positional:
        raise UsageError(f"--arg takes NAME=JSON, not {texts[0]!r}")
    return named


def _refuse_hidden(record: FlightRecord, given: dict[str, object], saved: str | None) -> None:
    if missing := [name for name in record.hidden if name not in given]:
        wanted = " ".join(f"--arg {line(name)}=JSON" for name in missing)
        raise UsageError(
            f"the record hides {', '.join(map(line, missing))}: an attempt with what is left would"
            f" show something else. Give the whole: {wanted}"
        )
    if record.hides_checkpoint and saved is None:
        raise UsageError("the record hides parts of the checkpoint: give one, --checkpoint JSON")


def _make_job(app: App | None, row: StoredJob, given: dict[str, object]) -> NewJob:
    """Return a job with a single attempt, whose bad end is the end of the job. Raises UnknownTask,
    and BadArguments if the record's cannot be decoded here."""
    args = row.args
    if app is not None:
        task, payloads = app.find(row.task), app.stores.payloads
        if given:
            told = msgspec.json.decode(payloads.decode("args", args), type=dict[str, object])
            args = payloads.encode("args", msgspec.json.encode(told | given).decode())
        task.signature.decode(args)
    policy = msgspec.structs.replace(row.policy, retries=0, max_losses=0, keep=None, logs=False)
    return NewJob(
        task=row.task,
        queue=row.queue,
        args=args,
        priority=row.priority,
        tenant=row.tenant,
        policy=policy,
    )


def _tell_release(record: FlightRecord) -> None:
    ran = {one.release for one in record.details.workers if one.release}
    here = os.environ.get("OUTLAST_RELEASE")
    if ran and here not in ran:
        told = f"this is {here}" if here else "$OUTLAST_RELEASE does not say which this is"
        say(f"it ran in release {', '.join(map(line, sorted(ran)))}; {told}")


def _run(
    spec: str | None,
    app: App | None,
    url: str,
    job: NewJob,
    checkpoint: str | None,
    record: FlightRecord,
) -> JobDetails:
    """Run the job in a worker with one runner; return what became of it."""
    from outlast.cli.worker import NO_APPLICATION
    from outlast.worker.assemble import run_worker

    async def work() -> JobDetails:
        async with store_at(url) as store:
            await store.open()
            job_id = await _enqueue(store, job, checkpoint)
            settings = _settings(app, record)
            await run_worker(spec or NO_APPLICATION, url, settings, until_empty=True, max_jobs=1)
            found = await read_details(store, job_id, SYSTEM.wall())
        assert found is not None
        return found

    return run_loop(work)


def _settings(app: App | None, record: FlightRecord) -> WorkerSettings:
    """Return the settings of a worker that may run any task of the application, with the limit of
    memory under which the recorded attempt ended."""
    from outlast.testing.drain import gather_needs

    crash = record.details.attempts[-1].crash if record.details.attempts else None
    memory = None if crash is None else crash.memory
    by_worker = memory is not None and memory.source == "max_rss"
    return worker_settings(
        runners=1,
        shell=app is None,
        max_rss=memory.limit_bytes if memory is not None and by_worker else None,
        **({} if app is None else gather_needs(app)),
    )


async def _enqueue(store: Store, job: NewJob, checkpoint: str | None) -> int:
    """Store the job, with the checkpoint as an attempt saves it; return its id."""
    from outlast.worker.assemble import new_worker

    (stored,) = await store.enqueue([job])
    if checkpoint is None:
        return stored.job_id
    me = await store.register(new_worker("record", worker_settings(), None))
    (one,) = (await store.exchange(me, [], [ClaimRequest([job.task], 1)])).claimed
    await store.checkpoint([Save(one.job_id, one.token, 1, checkpoint)])
    facts = JobFacts(job_id=one.job_id, token=one.token, policy=one.policy)
    released = Outcome(kind=OutcomeKind.RELEASED, message=_FROM_RECORD)
    await store.exchange(me, [decide(facts, released, SYSTEM.random)], [])
    await store.set_status(me, WorkerStatus.STOPPED)
    return stored.job_id


def _show(record: FlightRecord, found: JobDetails, *, stacks: bool) -> None:
    from outlast.cli.job_page import Page
    from outlast.cli.show import console

    out = console()
    Page(out, found, stacks=stacks).write_attempts()
    out.print(f"\nrecorded: {_end(record.details)}", soft_wrap=True)
    out.print(f"here:     {_end(found)}", soft_wrap=True)


def _end(details: JobDetails) -> str:
    state = details.row.state.value
    if details.row.state is State.COMPLETED:
        return f"{state}: {line(show_stored(details.row.result or 'null'), SHOWN_MAX)}"
    if not details.attempts:
        return state
    last = details.attempts[-1]
    return f"{state}, {line(last.outcome)}: {line(last.message)}"
