"""Check the application: its import, its tasks, and whether payloads are encrypted."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.base.text import count_of, line
from outlast.errors import UsageError
from outlast.insight.doctor.facts import Application, Facts
from outlast.insight.schedules import call_of
from outlast.insight.sentences import list_some
from outlast.payload.payloads import is_encrypted
from outlast.store.finding import Finding, hint, ok, problem, warning
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import UNENCRYPTED_MAX

TASKS_SHOWN = 10


def application(facts: Facts) -> Iterator[Finding]:
    """Whether the application imports, and has the tasks of all waiting jobs."""
    found = facts.application
    if found is None:
        return
    if found.error is not None:
        mend = "Workers of this release cannot run anything: fix the import."
        said = f"{found.spec} does not import: {line(found.error, 300)}"
        yield problem("application", said, mend)
        return
    yield ok(
        "application",
        f"{found.spec} imports; its tasks are {list_some(found.tasks, TASKS_SHOWN) or 'none'}.",
    )
    lanes = [] if facts.statistics is None else facts.statistics.lanes
    if missing := sorted({lane.task for lane in lanes} - {*found.tasks, *found.aliases}):
        names = list_some(missing, TASKS_SHOWN)
        yield warning(
            "unknown_tasks",
            f"There are due jobs of tasks that {found.spec} does not have: {names}.",
            "Give its tasks these names as aliases, or keep a worker that knows them.",
        )


def encryption(facts: Facts) -> Iterator[Finding]:
    """Whether plain payloads are refused, and which unfinished jobs and schedules have some."""
    found = facts.application
    if found is None or found.encryption == "none":
        return
    plain = _describe_plain(found, facts)
    if found.encryption == "optional":
        if sum(one.looked_at for one in facts.unencrypted) >= UNENCRYPTED_MAX:
            plain.append(f"perhaps more behind the first {UNENCRYPTED_MAX} jobs")
        said = ", ".join(plain) or "there are none"
        wait = "Wait until these jobs have ended, and put these schedules again; then set"
        yield hint(
            "encryption",
            f"{found.spec} encrypts payloads, and runs plain ones, too: {said}.",
            f"{wait if plain else 'Set'} Encryption(…, required=True).",
        )
    elif plain:
        yield warning(
            "encryption",
            f"{found.spec} requires that payloads are encrypted, and refuses {', '.join(plain)}.",
            "If you know who stored them: run the jobs by a worker of a release without"
            " required=True, put the schedules again. If not, someone may have changed rows.",
        )
    else:
        yield ok("encryption", f"{found.spec} requires that payloads are encrypted.")


def _describe_plain(found: Application, facts: Facts) -> list[str]:
    """Describe the plain payloads of this application's tasks."""
    own = {*found.tasks, *found.aliases}
    jobs = [one for one in facts.unencrypted if one.number and one.task in own]
    schedules = [row.name for row in facts.schedules if _is_plain(row, own)]
    said = []
    if jobs:
        number = count_of(sum(one.number for one in jobs), "unfinished job")
        said.append(f"{number} of {list_some([one.task for one in jobs])}")
    if schedules:
        said.append(f"{count_of(len(schedules), 'schedule')} ({list_some(schedules)})")
    return said


def _is_plain(row: ScheduleRow, own: set[str]) -> bool:
    try:
        call = call_of(row)
    except UsageError:
        return False  # such a schedule cannot fire either
    return call.task in own and not is_encrypted(call.args)


APPLICATION = (application, encryption)
