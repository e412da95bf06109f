"""Say by which filters people list jobs, and act on them.

A filter is one line: from it are made the options of commands (``cli.options``), the parameters of
the HTTP API with openapi.json (``web.api.route``), and the fields of the page's forms.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec

from outlast.errors import UsageError
from outlast.model.job import State
from outlast.model.kinds import Filter
from outlast.store.rows import SEARCH_MAX, JobFilter, JobNames, Texts, is_searchable

PHASES = {
    "scheduled": State.QUEUED,
    "waiting": State.QUEUED,
    "retrying": State.QUEUED,
    "suspect": State.QUEUED,
    "unservable": State.QUEUED,
    "paused": State.QUEUED,
    "limited": State.QUEUED,
    "throttled": State.QUEUED,
    "orphaned": State.RUNNING,
    "silent": State.RUNNING,
}
"""Phase -> the state that its jobs have."""
STATES = (*State, *PHASES)


class JobChoice(JobNames, frozen=True, kw_only=True):
    """Which jobs to show, or to act on; a field that is None lets all pass."""

    state: Annotated[
        str | None, Filter("only jobs in this state or phase", "STATE", "State", among=STATES)
    ] = None
    group: Annotated[str | None, Filter("only jobs of this group of `dead groups`", "ID")] = None
    args: Annotated[
        str | None,
        Filter("only jobs with this text in their arguments", "TEXT", "Arguments", right="payload"),
    ] = None
    error: Annotated[
        str | None,
        Filter("only jobs with this text (not a pattern) in their last error", "TEXT", "Error"),
    ] = None

    @property
    def texts(self) -> Texts | None:
        """The texts to search for, if any. Raises UsageError for one that no job can hold."""
        for name, text in (("args", self.args), ("error", self.error)):
            if text is not None and not is_searchable(text):
                raise UsageError(f"{name} takes a text of 1 to {SEARCH_MAX:,} characters")
        if (self.args, self.error, self.within) == (None, None, None):
            return None
        return Texts(args=self.args, error=self.error, within=self.within)

    @property
    def within(self) -> float | None:
        """The seconds back from now within which something has to have happened."""
        return None

    def job_filter(self, *, state: State | None = None, **more: Any) -> JobFilter:
        """Return this as a filter of the store, without its texts, for jobs in this state (default:
        its own). ``more``: further fields of the filter. Raises UsageError."""
        state = state or self._find_state() or (State.DEAD if self.group else None)
        names = {name: getattr(self, name) for name in JobNames.__struct_fields__}
        return JobFilter(**names | {"state": state, "fingerprint": self.group} | more)

    def _find_state(self) -> State | None:
        if self.state is None or self.state in PHASES:
            return PHASES.get(self.state or "")
        if self.state in set(State):
            return State(self.state)
        from outlast.payload.option_words import describe_state

        known = ", ".join(STATES)
        raise UsageError(
            f"state: {describe_state(self.state)} is not a state or phase; write one of {known}"
        )


class AskedJobs(JobChoice, frozen=True, kw_only=True):
    """The jobs that a command or a request asks for. ``since``: seconds back from now."""

    since: Annotated[
        float | None,
        Filter("only jobs that were enqueued, began or ended in this time, as 2h", "TIME", "Since"),
    ] = None

    @property
    def within(self) -> float | None:
        """As its ``since``."""
        return self.since

    def check(self) -> None:
        """Raise UsageError for an unknown state, and for a text that no job can hold."""
        self.job_filter()
        _ = self.texts


@cache
def filters_of_jobs() -> dict[str, Filter]:
    """Return the filters of jobs by their names."""
    fields = msgspec.structs.fields(AskedJobs)
    return {field.name: field.type.__metadata__[0] for field in fields}
