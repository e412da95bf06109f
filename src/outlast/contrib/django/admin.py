"""Show jobs and schedules in Django's admin, and act on them with the right permissions.

``OUTLAST_PAGE`` applies here, too, even to searches. Acts are recorded among the actions of the
store. Lists show, and count, only the newest jobs of a table that may have millions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import transaction
from django.utils.html import format_html, format_html_join

from outlast.base.clock import SYSTEM
from outlast.base.sync import run_in_background
from outlast.contrib.django.models import JobRecord, ScheduleRecord
from outlast.contrib.django.page_settings import covered, hides, is_read_only
from outlast.contrib.django.project import database, store_url
from outlast.errors import OutlastError, text_of
from outlast.insight.acting import ACTS, TOLD, By, Verb, act_on, note_on, trigger_schedule
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob
from outlast.store.schedules import ScheduleRow

R = TypeVar("R")

NEWEST = 1_000
PAGE = 50


class NewestPaginator(Paginator):
    """Pages of only the newest rows: it counts at most NEWEST."""

    count: Any = cached_property(lambda self: self.object_list[:NEWEST].count())


class _ReadOnly(admin.ModelAdmin):
    """The base for the models of the store: Django writes nothing."""

    paginator = NewestPaginator
    list_per_page = PAGE
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    view_permission = ""
    kind: type = StoredJob

    def get_queryset(self, request: Any) -> Any:
        """Return the rows in the project's store."""
        return super().get_queryset(request).using(database())

    @transaction.non_atomic_requests  # actions are the store's own transactions
    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Show the list, or act on the selected rows."""
        return super().changelist_view(request, extra_context)

    def get_object(self, request: Any, object_id: str, from_field: Any = None) -> Any:
        """Return one row to show, with secrets hidden."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            names = [field.attname for field in row._meta.concrete_fields]  # noqa: SLF001  (so Django calls what is public)
            columns = {name: getattr(row, name) for name in names}
            for name, value in covered(columns, self.kind).items():
                setattr(row, name, value)
        return row

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Whether rows may be filtered like this. If anything is hidden, only by fields that lists
        show: any other filter could reveal it."""
        shown = {*self.list_display, *self.list_filter}
        if hides() and lookup.partition("__")[0] not in shown:
            return False
        return bool(super().lookup_allowed(lookup, value, request))

    def may(self, request: Any, permission: str) -> bool:
        """Whether this permission allows this user to change something."""
        return bool(request.user.has_perm(f"outlast.{permission}")) and not is_read_only()

    def has_add_permission(self, request: Any) -> bool:
        """Return False: jobs are enqueued by the project, not by hand."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: changes are made by actions."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: the action discards dead jobs."""
        return False

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        """Whether this user may see the rows."""
        return bool(request.user.has_perm(self.view_permission))

    def has_module_permission(self, request: Any) -> bool:
        """Whether the models are on this user's first page."""
        return self.has_view_permission(request)

    def act(
        self, request: Any, verb: Callable[[Store], Awaitable[R]], say: Callable[[R], str]
    ) -> None:
        """Act on the store, which is opened for this act alone, and tell the user its effect."""
        url = store_url()

        async def there() -> R:
            store = open_store(url)
            try:
                await store.open()
                return await verb(store)
            finally:
                await store.close()

        try:
            self.message_user(request, say(run_in_background(there)))
        except OutlastError as error:
            self.message_user(request, text_of(error), messages.ERROR)


@admin.register(JobRecord)
class JobAdmin(_ReadOnly):
    """Jobs, newest first."""

    view_permission = "outlast.view_job"
    list_display = ("id", "task", "queue", "state", "attempt_count", "enqueued_at", "ended_at")
    list_filter = ("state",)
    search_fields = ("=id",)
    search_help_text = "The number of a job"
    readonly_fields = ("attempts_made",)

    def get_actions(self, request: Any, action_location: Any = None) -> Any:
        """Return the acts on jobs for which this user has the permission; none on the page of one.

        Only Django 6.1 and later say where they are to be shown.
        """
        is_of_one = getattr(action_location, "name", None) == "CHANGE_FORM"
        return {
            verb: (_act_on, verb, f"{verb.capitalize()} the selected jobs")
            for verb in Verb
            if self.may(request, f"{verb}_job") and not is_of_one
        }

    @admin.display(description="attempts that did not complete")
    def attempts_made(self, job: Any) -> Any:
        """Return how each attempt ended, as a list."""
        rows = [
            (each.number, each.outcome, covered({"message": each.message}, StoredJob)["message"])
            for each in job.attempts.all()
        ]
        shown = format_html_join("", "<li>{}: {} <pre>{}</pre></li>", rows)
        return format_html("<ol>{}</ol>", shown) if rows else "-"


def _act_on(admin_: Any, request: Any, queryset: Any) -> None:
    """Act on the selected jobs, in the states that the act is for."""
    verb, ids = request.POST["action"], list(queryset.values_list("pk", flat=True))
    note = note_on(verb, By(request.user.get_username()), ids)

    def say(answers: Mapping[int, str]) -> str:
        done, (first, *others) = Counter(answers.values()), ACTS[verb].effects
        told = [f"{done[first]} of {len(ids)} {first}"]
        told += [f"{done[one]} {TOLD[one]}" for one in others]
        states = " or ".join(ACTS[verb].states)
        return f"{', '.join(told)}; {verb} is for jobs that are {states}"

    admin_.act(request, lambda store: act_on(store, verb, ids, note), say)


@admin.register(ScheduleRecord)
class ScheduleAdmin(_ReadOnly):
    """Schedules by name."""

    view_permission = "outlast.view_schedule"
    kind = ScheduleRow
    list_display = ("name", "spec", "paused", "next_tick", "last_tick", "fired")
    actions = ("trigger",)

    def has_trigger_permission(self, request: Any) -> bool:
        """Whether this user may trigger schedules."""
        return self.may(request, "trigger_schedule")

    @admin.action(description="Trigger the selected schedules now", permissions=["trigger"])
    def trigger(self, request: Any, queryset: Any) -> None:
        """Enqueue the call of each schedule, even of a paused one."""
        for name in list(queryset.values_list("pk", flat=True)):
            self._trigger(request, name)

    def _trigger(self, request: Any, name: str) -> None:
        by = By(request.user.get_username())
        self.act(
            request,
            lambda store: trigger_schedule(store, name, SYSTEM.wall(), by),
            lambda stored: f"Job {stored.job_id} of {name}",
        )
