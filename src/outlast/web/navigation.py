"""The pages of the menu, in its order."""

from __future__ import annotations

from typing import NamedTuple


class MenuEntry(NamedTuple):
    """A page in the menu. ``by_tenant``: it is there for users of one tenant, too."""

    path: str
    title: str
    by_tenant: bool = False


NAVIGATION: list[MenuEntry] = [
    MenuEntry("/", "Overview"),
    MenuEntry("/jobs", "Jobs", by_tenant=True),
    MenuEntry("/dead", "Dead jobs", by_tenant=True),
    MenuEntry("/deaths", "Deaths", by_tenant=True),
    MenuEntry("/queues", "Queues"),
    MenuEntry("/tasks", "Tasks"),
    MenuEntry("/workers", "Workers"),
    MenuEntry("/schedules", "Schedules"),
    MenuEntry("/refusals", "Refusals"),
    MenuEntry("/actions", "Actions"),
    MenuEntry("/system", "System"),
]
