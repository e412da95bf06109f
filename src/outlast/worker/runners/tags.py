"""Finds the tasks that a worker may serve: it has the tags that they require, and what they use.

A task that may not be served is never requested, so that the claim needs no tags. It is listed
separately, so that people can see which tags are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from outlast.runner.protocol import TaskInfo

NOTHING: Mapping[str, int] = {}


def missing(requires: Collection[str], tags: Collection[str]) -> list[str]:
    """Return the required tags that a worker with ``tags`` lacks; none: it may serve the task."""
    return sorted(set(requires) - set(tags))


def lacking(uses: Mapping[str, int], has: Mapping[str, int]) -> list[str]:
    """Return the units of which a worker has too few to ever run such a task, as in ``gpu=2``."""
    return [f"{unit}={count}" for unit, count in sorted(uses.items()) if has.get(unit, 0) < count]


def split_by_tags(
    infos: Iterable[TaskInfo], tags: Collection[str], has: Mapping[str, int] = NOTHING
) -> tuple[dict[str, bool], dict[str, list[str]]]:
    """Return the tasks to serve (name -> own runner), and the others (name -> the lacking tags, and
    units as in ``gpu=2``)."""
    serves: dict[str, bool] = {}
    lacks: dict[str, list[str]] = {}
    for info in infos:
        if needed := [*missing(info.requires, tags), *lacking(info.uses, has)]:
            lacks[info.name] = needed
        else:
            serves[info.name] = info.own_runner
    return serves, lacks
