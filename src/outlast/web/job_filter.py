"""Read the filter of jobs in the URL, for the list and for acts on all jobs that match."""

from __future__ import annotations

import msgspec

from outlast.base.config import parse_seconds
from outlast.base.text import shell_word
from outlast.insight.queries import make_texts, state_of
from outlast.model.job import State
from outlast.store.rows import SEARCH_MAX, Texts, is_searchable
from outlast.web.access import Right
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit


class AskedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The requested jobs, in the words of the URL; a field that is None matches all.

    Attributes:
        phase: a state or one of ``PHASES``; in a URL also as ``state=``, as the API calls it.
        queue, task, tenant, label: the jobs' own.
        group: only dead jobs of this group.
        args, error: a text that they contain (``store.rows.Texts``).
        since: a span of time such as 2h: only jobs to which something happened in that time.
    """

    phase: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    label: str | None = None
    group: str | None = None
    args: str | None = None
    error: str | None = None
    since: str | None = None

    @property
    def state(self) -> State | None:
        """The state of jobs in this state or phase. UsageError for any other word."""
        return state_of(self.phase, "phase")

    @property
    def within(self) -> float | None:
        """``since`` in seconds. Raises ConfigError."""
        return None if self.since is None else parse_seconds(self.since)

    @property
    def texts(self) -> Texts | None:
        """The texts to search for by reading jobs, if any. Raises ConfigError."""
        return make_texts(self.args, self.error, self.within)


def read_asked(visit: Visit) -> AskedJobs:
    """Return the filter in the URL, restricted to the visitor's tenant, or refuse it."""
    named = {name: visit.read_name(name) for name in AskedJobs.__struct_fields__}
    named["phase"] = named["phase"] or visit.read_name("state")
    if visit.access.tenant is not None:
        named["tenant"] = visit.access.tenant
    asked = AskedJobs(**named)
    check_search(visit, args=asked.args, error=asked.error)
    return asked


def query_of(visit: Visit, asked: AskedJobs) -> dict[str, str]:
    """Return the filter as the query of links."""
    told = {name: one for name, one in msgspec.structs.asdict(asked).items() if one}
    return {name: one for name, one in told.items() if name != "tenant" or not visit.access.tenant}


def check_search(visit: Visit, *, args: str | None, error: str | None) -> None:
    """Refuse a search that would reveal hidden values: whether a job is found gives
    its texts away, letter by letter, even if they are hidden."""
    if args is not None and not visit.may(Right.PAYLOAD):
        said = f"{visit.access.user} lacks the right payload: arguments cannot be searched."
        raise WebRefusal(403, "Not allowed", said)
    for name, text in (("args", args), ("error", error)):
        if text is None:
            continue
        if visit.site.hiding.is_needed:
            raise WebRefusal(
                403,
                "Not allowed",
                "This page hides parts of jobs, and a search would reveal them: search with"
                f" `outlast jobs --{shell_word(name)} TEXT`.",
            )
        if not is_searchable(text):
            said = f"{name}= must be a text of 1 to {SEARCH_MAX:,} characters."
            raise WebRefusal(400, "Not valid", said)
