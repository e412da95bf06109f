"""Read the filters in the URL, for lists and for acts on all jobs that match."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from outlast.base.config import parse_seconds
from outlast.base.text import shell_word
from outlast.insight.filters import AskedJobs, JobChoice, filters_of_jobs
from outlast.model.kinds import Filter, is_of
from outlast.web.problem import WebRefusal
from outlast.web.visit import ID_MAX, Visit

FILTERS = filters_of_jobs()
Taken = Mapping[str, Mapping[str, Filter]]
"""Parameter -> the filters in the URL for which it stands."""


def taken_by(handler: Callable[..., Any]) -> Taken:
    """Return the filters that a handler takes: its keyword parameters. One of the type
    ``AskedJobs`` stands for the filters of jobs, or, marked with their names, for some."""
    found = {}
    for name, one in inspect.signature(handler, eval_str=True).parameters.items():
        if one.kind is one.KEYWORD_ONLY and is_of(one.annotation, AskedJobs):
            (names,) = getattr(one.annotation, "__metadata__", (FILTERS,))
            found[name] = {each: FILTERS[each] for each in names}
        elif one.kind is one.KEYWORD_ONLY:
            (filter_,) = one.annotation.__metadata__
            found[name] = {name: filter_}
    return found


def read_taken(visit: Visit, taken: Taken) -> dict[str, Any]:
    """Return the values of these parameters; one that is missing in the URL is left out."""
    found = {
        name: read_filter(visit, name, filters[name])
        if name in filters
        else read_asked(visit, filters)
        for name, filters in taken.items()
    }
    return {name: value for name, value in found.items() if value is not None}


def read_filter(visit: Visit, name: str, filter_: Filter) -> Any:
    """Return the value of a filter in the URL, or refuse it; None: it is missing."""
    if filter_.value == "N":
        return visit.read_number(name, filter_.most or ID_MAX)
    text, among = visit.read_name(name), filter_.among
    if text is None and filter_.is_needed:
        said = f"Which {name}? Ask for {visit.path.rpartition('/')[2]}?{name}=NAME."
        raise WebRefusal(400, "Not valid", said)
    if text is not None and among and text not in among:
        said = f"{name}= must be {', '.join(among[:-1])} or {among[-1]}."
        raise WebRefusal(400, "Not valid", said)
    return parse_seconds(text) if text and filter_.value == "TIME" else text


def read_asked(visit: Visit, names: Iterable[str] = FILTERS) -> AskedJobs:
    """Return the filters of jobs in the URL, restricted to the visitor's tenant, or refuse them."""
    given = {name: read_filter(visit, name, FILTERS[name]) for name in names if name != "state"}
    given |= {"state": visit.read_name("state")} | _own(visit)
    asked = AskedJobs(**given)
    check_search(visit, asked)
    asked.check()
    return asked


def _own(visit: Visit) -> dict[str, str]:
    """Return the filter that a visitor of one tenant cannot choose."""
    return {} if visit.access.tenant is None else {"tenant": visit.access.tenant}


def query_of(visit: Visit) -> dict[str, str]:
    """Return the filters in the URL as the query of links."""
    return {
        name: text for name, text in visit.query.items() if name in FILTERS.keys() - _own(visit)
    }


def fields_for(visit: Visit, names: Iterable[str] = FILTERS) -> dict[str, Filter]:
    """Return the filters among these that a form has for this visitor."""
    hides = visit.site.hiding.is_needed
    return {
        name: one
        for name, one in FILTERS.items()
        if name in names and name not in _own(visit) and one.title
        if visit.may(one.right or "view") and not (hides and one.value == "TEXT")
    }


def check_search(visit: Visit, which: JobChoice) -> None:
    """Refuse a search that would reveal hidden values: whether a job is found gives
    its texts away, letter by letter, even if they are hidden."""
    for name, one in FILTERS.items():
        if one.value != "TEXT" or getattr(which, name) is None:
            continue
        if one.right is not None and not visit.may(one.right):
            said = f"{visit.access.user} lacks the right {one.right}: arguments cannot be searched."
            raise WebRefusal(403, "Not allowed", said)
        if visit.site.hiding.is_needed:
            raise WebRefusal(
                403,
                "Not allowed",
                "This page hides parts of jobs, and a search would reveal them: search with"
                f" `outlast jobs --{shell_word(name)} TEXT`.",
            )
