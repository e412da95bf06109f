"""Check whether the application requires encryption, and which payloads are still plain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlast.base.text import count_of, line
from outlast.errors import UsageError
from outlast.insight.doctor.finding import Application, Facts
from outlast.insight.schedules import call_of
from outlast.payload.payloads import is_encrypted
from outlast.store.finding import Finding, Level, ok
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import UNENCRYPTED_MAX

NAMES_SHOWN = 5


def encryption(facts: Facts) -> Iterator[Finding]:
    """Whether plain payloads are refused, and which unfinished jobs and schedules have some."""
    found = facts.application
    if found is None or found.encryption == "none":
        return
    plain = _describe_plain(found, facts)
    if found.encryption == "optional":
        yield _describe_optional(found, plain + _describe_rest(facts))
    elif plain:
        yield Finding(
            level=Level.WARNING,
            name="encryption",
            sentence=f"{found.spec} requires that payloads are encrypted, and refuses"
            f" {', '.join(plain)}.",
            mend="If you know who stored them: run the jobs by a worker of a release without"
            " required=True, put the schedules again. If not, someone may have changed rows.",
        )
    else:
        yield ok("encryption", f"{found.spec} requires that payloads are encrypted.")


def _describe_optional(found: Application, plain: list[str]) -> Finding:
    return Finding(
        level=Level.HINT,
        name="encryption",
        sentence=f"{found.spec} encrypts payloads, and runs plain ones, too:"
        f" {', '.join(plain) or 'there are none'}.",
        mend="Wait until these jobs have ended, and put these schedules again; then set"
        " Encryption(…, required=True)."
        if plain
        else "Set Encryption(…, required=True).",
    )


def _describe_plain(found: Application, facts: Facts) -> list[str]:
    """Describe the plain payloads of this application's tasks."""
    own = {*found.tasks, *found.aliases}
    jobs = [one for one in facts.unencrypted if one.number and one.task in own]
    schedules = [row.name for row in facts.schedules if _is_plain(row, own)]
    said = []
    if jobs:
        number = count_of(sum(one.number for one in jobs), "unfinished job")
        said.append(f"{number} of {_listed([one.task for one in jobs])}")
    if schedules:
        said.append(f"{count_of(len(schedules), 'schedule')} ({_listed(schedules)})")
    return said


def _describe_rest(facts: Facts) -> list[str]:
    looked_at = sum(one.looked_at for one in facts.unencrypted)
    more = f"perhaps more behind the first {UNENCRYPTED_MAX} jobs"
    return [more] if looked_at >= UNENCRYPTED_MAX else []


def _is_plain(row: ScheduleRow, own: set[str]) -> bool:
    try:
        call = call_of(row)
    except UsageError:
        return False  # such a schedule cannot fire either
    return call.task in own and not is_encrypted(call.args)


def _listed(names: list[str]) -> str:
    shown = ", ".join(line(name, 60) for name in names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more" if names[NAMES_SHOWN:] else shown


ENCRYPTION: tuple[Callable[[Facts], Iterator[Finding]], ...] = (encryption,)
