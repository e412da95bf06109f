"""The admin, by Django's test client: what each permission lets people see and do."""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import TransactionTestCase, override_settings

from outlast.contrib.django.admin import NEWEST, NewestPaginator
from outlast.contrib.django.models import JobRecord, ScheduleRecord
from outlast.insight.hiding import HIDDEN
from shop import tasks
from shop.checks.work import work

JOBS, SCHEDULES = "/admin/outlast/jobrecord/", "/admin/outlast/schedulerecord/"


class Admin(TransactionTestCase):
    def sign_in(self, *permissions: str) -> None:
        user = User.objects.create_user("ann", is_staff=True)
        names = ("view_job", "view_schedule", *permissions)
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        self.client.force_login(user)

    def act(self, where: str, action: str, *ids: Any) -> str:
        form = {"action": action, "_selected_action": [str(each) for each in ids]}
        return self.client.post(where, form, follow=True).content.decode()

    def state(self, job_id: Any) -> str:
        return JobRecord.objects.get(pk=job_id).state

    def test_jobs_are_read(self):
        results = [tasks.mail.enqueue("<b>ann"), tasks.fails.enqueue()]
        work(*results)
        self.sign_in()
        page = self.client.get(JOBS).content.decode()
        self.assertIn("shop.tasks.fails", page)
        for action in ("requeue", "cancel", "discard", "delete_selected"):
            self.assertNotIn(f'value="{action}"', page)
        self.assertIn(
            "shop.tasks.fails", self.client.get(f"{JOBS}?state__exact=dead").content.decode()
        )
        found = self.client.get(f"{JOBS}?q={results[0].id}").content.decode()
        self.assertIn("1 job", found)
        self.assertEqual(self.client.get(f"{JOBS}?q=emma").status_code, 200)
        one = self.client.get(f"{JOBS}{results[1].id}/change/").content.decode()
        self.assertIn("OutOfPaper: no paper", one)
        self.assertNotIn('name="_save"', one)
        other = self.client.get(f"{JOBS}{results[0].id}/change/").content.decode()
        self.assertIn("&lt;b&gt;ann", other)

    def test_nothing_is_added_changed_or_deleted(self):
        result = tasks.mail.enqueue("ann")
        self.sign_in()
        for path in (f"{JOBS}add/", f"{JOBS}{result.id}/delete/", f"{SCHEDULES}add/"):
            self.assertEqual(self.client.get(path).status_code, 403)
        self.assertEqual(self.client.post(f"{JOBS}{result.id}/change/", {}).status_code, 403)

    def test_without_permission_nothing_is_seen_or_done(self):
        result = tasks.mail.enqueue("ann")
        User.objects.create_user("bob", is_staff=True)
        self.client.force_login(User.objects.get(username="bob"))
        self.assertEqual(self.client.get(JOBS).status_code, 403)
        self.sign_in("requeue_job")
        self.act(JOBS, "cancel", result.id)
        self.assertEqual(self.state(result.id), "queued")

    def test_a_job_is_cancelled_requeued_and_discarded(self):
        self.sign_in("cancel_job", "requeue_job", "discard_job")
        failed = tasks.fails.enqueue()
        work(failed)
        cancelled = tasks.mail.enqueue("bob")
        one = self.client.get(f"{JOBS}{cancelled.id}/change/").content.decode()
        self.assertNotIn('value="cancel"', one, "acts are on the list alone")
        self.assertIn("1 of 1 cancelled", self.act(JOBS, "cancel", cancelled.id))
        self.assertEqual(self.state(cancelled.id), "cancelled")
        self.assertIn("1 of 2 discarded", self.act(JOBS, "discard", failed.id, cancelled.id))
        self.assertFalse(JobRecord.objects.filter(pk=failed.id).exists())
        self.assertIn("1 of 1 requeued", self.act(JOBS, "requeue", cancelled.id))
        self.assertEqual(self.state(cancelled.id), "queued")

    def test_a_schedule_is_triggered(self):
        work(tasks.count.enqueue())  # whose worker declares it
        self.sign_in("trigger_schedule")
        self.assertTrue(ScheduleRecord.objects.filter(name="nightly").exists())
        self.assertIn("nightly", self.client.get(SCHEDULES).content.decode())
        self.assertIn(" of nightly", self.act(SCHEDULES, "trigger", "nightly"))
        self.assertTrue(JobRecord.objects.filter(task="shop.tasks.print_order").exists())

    @override_settings(
        OUTLAST_PAGE={"hide": "secret-[a-z]+|no paper", "hide_keys": ["to", "order_id"]}
    )
    def test_what_the_page_hides_is_hidden_and_not_searched(self):
        mailed, failed = tasks.count.enqueue(text="secret-ann", to="4711"), tasks.fails.enqueue()
        work(mailed, failed)
        self.sign_in()
        for job_id in (mailed.id, failed.id):
            shown = self.client.get(f"{JOBS}{job_id}/change/").content.decode()
            self.assertIn(HIDDEN, shown)
            for secret in ("secret-ann", "4711", "no paper"):
                self.assertNotIn(secret, shown)
        stored = JobRecord.objects.get(pk=mailed.id)
        self.assertIn("secret-ann", stored.args, "the model itself reads what is stored")
        for query in ("args__contains=secret", "attempts__message__contains=paper", "result=x"):
            found = self.client.get(f"{JOBS}?{query}")
            self.assertNotEqual(found.status_code, 200, query)
        self.assertEqual(self.client.get(f"{JOBS}?queue__exact=mail").status_code, 200)
        call = ScheduleRecord.objects.get(name="nightly").call
        self.assertIn("order_id", call)
        shown = self.client.get(f"{SCHEDULES}nightly/change/").content.decode()
        self.assertIn(HIDDEN, shown)

    def test_what_is_done_is_recorded(self):
        failed = tasks.fails.enqueue()
        work(failed)
        cancelled = tasks.mail.enqueue("bob")
        self.sign_in("cancel_job", "requeue_job", "discard_job", "trigger_schedule")
        self.act(JOBS, "cancel", cancelled.id)
        self.act(JOBS, "requeue", cancelled.id)
        self.act(JOBS, "discard", failed.id)
        self.act(SCHEDULES, "trigger", "nightly")
        with connection.cursor() as cursor:
            cursor.execute("SELECT actor, verb, target FROM outlast_actions ORDER BY id")
            rows = [tuple(row) for row in cursor.fetchall()]
        self.assertEqual(
            rows,
            [
                ("ann", "cancel", f"job {cancelled.id}"),
                ("ann", "requeue", f"job {cancelled.id}"),
                ("ann", "discard", f"job {failed.id}"),
                ("ann", "trigger schedule", "schedule nightly"),
            ],
        )

    @override_settings(OUTLAST_PAGE={"read_only": True})
    def test_nothing_is_changed_where_the_page_is_read_only(self):
        waits = tasks.mail.enqueue("bob")
        self.sign_in("cancel_job", "requeue_job", "discard_job", "trigger_schedule")
        self.assertNotIn('value="cancel"', self.client.get(JOBS).content.decode())
        self.act(JOBS, "cancel", waits.id)
        self.assertEqual(self.state(waits.id), "queued")

    def test_lists_count_no_more_than_the_newest(self):
        newest = mock.Mock()
        newest.count.return_value = NEWEST
        rows = mock.MagicMock()
        rows.__getitem__.return_value = newest
        self.assertEqual(NewestPaginator(rows, 50).count, NEWEST)
        rows.__getitem__.assert_called_once_with(slice(None, NEWEST, None))
        rows.count.assert_not_called()
