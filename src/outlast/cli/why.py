"""``outlast why``."""

from __future__ import annotations

import msgspec
import typer  # noqa: TC002  (typer reads the annotations)

from outlast.base.clock import SYSTEM
from outlast.base.text import count_of
from outlast.cli.connect import describe_missing, on_store
from outlast.cli.options import JobId, Json, Url, advise
from outlast.errors import JobNotFound
from outlast.insight.queries import read_details
from outlast.insight.why import why as explained
from outlast.insight.why import why_document


def why(context: typer.Context, job_id: JobId, url: Url = None, json: Json = False) -> None:
    """Say why a job is where it is, and what would move it.

    It says which worker runs the job and how long it may, what the job waits for, which worker is
    missing, or why it died; then what would move it, and how many others are in its position.

    Examples:
        outlast why 17
        outlast why 17 --json
    """
    about = on_store(url, lambda store: read_details(store, job_id, SYSTEM.wall()))
    if about is None:
        raise JobNotFound(describe_missing(job_id, url))
    answer = explained(about)
    moves = [advise(context, move) for move in answer.moves]
    answer = msgspec.structs.replace(answer, moves=moves)
    from outlast.cli.show import console, print_json, word

    if json:
        print_json(why_document(about.row, answer))
        return
    out = console()
    out.print(f"job {job_id}: ", word(answer.position.replace("_", " ")), sep="", end="\n\n")
    for sentence in answer.sentences:
        out.print(sentence, soft_wrap=True)
    for move in answer.moves:
        out.print(f"-> {move}", style="bold", soft_wrap=True)
    if answer.others:
        others = count_of(answer.others, f"{'or more ' if answer.at_least else ''}other job")
        verb = "is" if answer.others == 1 else "are"
        out.print(f"\n{others} {verb} in the same position.", style="dim")
