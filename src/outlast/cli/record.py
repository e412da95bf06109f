"""``outlast job ID --record`` and ``outlast record show``: a job's flight record in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import outlast
from outlast.base.clock import SYSTEM
from outlast.base.text import count_of, line, safe, stamp
from outlast.cli.connect import describe_missing, on_store
from outlast.cli.job_page import print_new
from outlast.cli.options import flag, make_group
from outlast.errors import JobNotFound, UsageError
from outlast.insight.flight import FlightRecord, decode_record, encode_record, read_flight_record
from outlast.insight.hiding import Hiding

RECORD_MAX = 64 * 1024**2  # bytes of a file that is read

RecordFile = Annotated[Path, typer.Argument(metavar="FILE", help="A flight record.")]

HELP = """Look at the flight record of a job, without its store.

`outlast job ID --record FILE` writes one; `outlast replay FILE` tries its attempt again.

Examples:
    outlast job 17 --record job-17.json --hide-key '*token*'
    outlast record show job-17.json
"""


def write_record(job_id: int, file: Path, hiding: Hiding, url: str | None) -> None:
    """Write the record of a job to a new file, which only this user may read. Raises JobNotFound,
    and UsageError if the file cannot be written."""
    record = on_store(
        url,
        lambda store: read_flight_record(store, job_id, SYSTEM.wall(), hiding, outlast.__version__),
    )
    if record is None:
        raise JobNotFound(describe_missing(job_id, url))
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "wb") as out:
            out.write(encode_record(record))
    except FileExistsError:
        raise UsageError(f"--record: there is a file {file} already: choose another name") from None
    except OSError as error:
        raise UsageError(f"--record: {file} cannot be written: {error.strerror}") from error
    hidden = [*record.hidden, *(["the checkpoint"] if record.hides_checkpoint else [])]
    told = f"; hidden in part: {', '.join(hidden)}" if hidden else ""
    print(f"job {job_id} is recorded in {file}{safe(told)}")


def read_record(file: Path) -> FlightRecord:
    """Return the record in a file; UsageError if there is none."""
    try:
        with file.open("rb") as data:
            content = data.read(RECORD_MAX + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > RECORD_MAX:
        raise UsageError(f"{file} has more than {RECORD_MAX} bytes: it is no flight record")
    return decode_record(content, str(file))


def show(
    file: RecordFile,
    stacks: Annotated[bool, flag("--stacks", "Show the stacks of all threads of a crash.")] = False,
) -> None:
    """Show a job as `outlast job` did when it was recorded.

    Below it are the lines that its attempts printed, what people did with it, and whether its
    history keeps the guarantees, as `outlast verify` checks them. The file is JSON.

    Examples:
        outlast record show job-17.json
        outlast record show job-17.json --stacks
    """
    from outlast.cli.job_page import Page
    from outlast.cli.show import console

    record = read_record(file)
    out, details = console(), record.details
    origin = f"{line(record.store, 200)}, by Outlast {line(record.outlast)}"
    out.print(f"recorded {stamp(details.now)} from {origin}", style="dim", soft_wrap=True)
    Page(out, details, stacks=stacks).write()
    if record.logs:
        out.print("\nwhat it printed", style="bold")
        print_new(record.logs, {})
    for each in record.actions:
        why = f": {line(each.reason, 200)}" if each.reason else ""
        told = f"{stamp(each.at)}  {line(each.verb)} by {line(each.actor)}{why}"
        out.print(told, soft_wrap=True)
    for one in details.workers:
        release = f", release {line(one.release)}" if one.release else ""
        spans = f"heartbeat {one.heartbeat:g} s, lease {one.lease:g} s"
        out.print(f"worker {line(one.name)} on {line(one.host)}: {spans}{release}", soft_wrap=True)
    out.print(f"\nverify: {_verdict(record)}", soft_wrap=True)
    for finding in record.findings:
        word = "doubt" if finding.doubt else "VIOLATION"
        out.print(f"  {word}  {finding.rule}: {line(finding.sentence, 400)}", soft_wrap=True)


def _verdict(record: FlightRecord) -> str:
    if record.findings:
        return count_of(len(record.findings), "finding")
    return f"{len(record.rules)} rules hold"


GROUP = make_group(HELP, show)
