"""Which tasks a worker may serve: those whose ``requires`` are all among its tags.

A runner announces every task that it knows. What may not be served is never asked for, so that
the claim knows nothing of tags; it is kept beside the rest, so that people can see what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from outlast.runner.protocol import TaskInfo


def missing(requires: Collection[str], tags: Collection[str]) -> list[str]:
    """Return the tags that a worker with these tags would need on top; none: it may serve."""
    return sorted(set(requires) - set(tags))


def split_by_tags(
    infos: Iterable[TaskInfo], tags: Collection[str]
) -> tuple[dict[str, bool], dict[str, list[str]]]:
    """Return the tasks to serve (name -> own runner), and the others (name -> missing tags)."""
    serves: dict[str, bool] = {}
    lacks: dict[str, list[str]] = {}
    for info in infos:
        if needed := missing(info.requires, tags):
            lacks[info.name] = needed
        else:
            serves[info.name] = info.own_runner
    return serves, lacks
