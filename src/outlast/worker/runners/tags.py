"""Finds the tasks that a worker may serve: those whose ``requires`` are all among its tags.

A runner announces every task that it knows. A task that may not be served is never requested, so
that the claim needs no tags; it is listed separately, so that people can see which tags are
missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from outlast.runner.protocol import TaskInfo


def missing(requires: Collection[str], tags: Collection[str]) -> list[str]:
    """Return the required tags that a worker with ``tags`` lacks; none: it may serve the task."""
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
