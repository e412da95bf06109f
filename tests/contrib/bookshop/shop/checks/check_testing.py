"""Jobs that run in a test of the project."""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections, transaction
from django.test import TestCase, TransactionTestCase

from outlast.contrib.django import app
from outlast.contrib.django import tasks_api as api
from outlast.contrib.django.models import JobRecord
from outlast.contrib.django.testing import isolate
from outlast.errors import UsageError
from outlast.store.backend import file_of
from outlast.testing import isolate as isolate_app
from shop import tasks
from shop.models import Order

SUCCESSFUL = api.TaskResultStatus.SUCCESSFUL


class Running(TransactionTestCase):
    def setUp(self) -> None:
        self.jobs: Any = self.enterContext(isolate())

    def test_what_is_due_runs(self):
        Order.objects.create(title="Emma")
        results = [tasks.mail.enqueue("ann"), tasks.titles.enqueue()]
        self.assertEqual(self.jobs.drain_sync(), 2)
        for result in results:
            result.refresh()
            self.assertEqual(result.status, SUCCESSFUL, result.errors)
        self.assertEqual(results[1].return_value, ["Emma"])

    def test_jobs_under_a_limit_of_the_settings_run(self):
        results = [tasks.count.using(backend="patient").enqueue() for _ in range(2)]
        self.assertEqual(self.jobs.drain_sync(), 2)
        for result in results:
            result.refresh()
            self.assertEqual(result.status, SUCCESSFUL, result.errors)
        (limit,) = app.limits.list_sync()
        self.assertEqual((limit.name, limit.running, limit.used), ("press", 1, 0))
        self.assertIs(app.limit("press"), app.limits.declared["press"])

    def test_a_transaction_is_that_of_the_request(self):
        with transaction.atomic():
            tasks.mail.enqueue("ann")
            tasks.print_order.enqueue_sync(1, 1)
            transaction.set_rollback(True)
        self.assertEqual((self.jobs.drain_sync(), JobRecord.objects.count()), (0, 0))

    def test_a_task_dies_half_done_and_goes_on(self):
        order = Order.objects.create(title="Emma")
        job = tasks.print_order.enqueue_sync(order.pk, 2)
        self.jobs.crash_after_save(1)
        self.assertEqual(self.jobs.drain_sync(), 2)
        self.assertEqual(job.result_sync(), "2 pages in attempt 2")
        order.refresh_from_db()
        self.assertEqual(order.printed, 2)

    def test_a_failure_is_that_of_the_test(self):
        tasks.fails.enqueue()
        with self.assertRaisesMessage(AssertionError, "no paper"):
            self.jobs.drain_sync()

    def test_time_passes_in_a_file(self):
        result = tasks.fails.enqueue()
        self.jobs.drain_sync(may_fail=True)
        if connection.vendor == "sqlite":
            self.jobs.travel(1)
            self.assertEqual(self.jobs.drain_sync(may_fail=True), 1)
            result.refresh()
            self.assertEqual(result.status, api.TaskResultStatus.FAILED)

    def test_no_connection_of_a_task_is_left(self):
        with mock.patch.dict(connection.settings_dict, CONN_MAX_AGE=600):
            result = tasks.session.enqueue()
            self.jobs.drain_sync()
        result.refresh()
        if connection.vendor != "sqlite":  # it would keep the database from being dropped
            with connection.cursor() as cursor:
                pids = [result.return_value]
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", [pids])
                self.assertEqual(cursor.fetchone(), (0,))


class Leaving(TransactionTestCase):
    def test_no_folder_is_left(self):
        with isolate() as jobs:
            tasks.count.enqueue()
            jobs.drain_sync()
            path = file_of(jobs.url)
        if path is not None:
            self.assertFalse(path.with_name(f"{path.name}-locks").exists())


class NotRunning(TestCase):
    def test_another_store_has_what_is_enqueued_meanwhile(self):
        with isolate_app(app) as elsewhere:
            tasks.print_order.enqueue_sync(1, 2)
            elsewhere.enqueued(tasks.print_order, order_id=1)
        self.assertEqual(JobRecord.objects.count(), 0)

    def test_a_test_case_is_refused(self):
        with self.assertRaisesMessage(UsageError, "use a TransactionTestCase"), isolate():
            pass

    def test_the_app_is_as_it_was(self):
        self.assertTrue(app.stores.is_durable)


class InMemory(TransactionTestCase):
    def test_a_database_in_memory_is_refused(self):
        here = connections["default"]
        if here.vendor == "sqlite":
            with (
                mock.patch.object(here, "is_in_memory_db", return_value=True),
                self.assertRaisesMessage(ImproperlyConfigured, "a NAME"),
                isolate(),
            ):
                pass
