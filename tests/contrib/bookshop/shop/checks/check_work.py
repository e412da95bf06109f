"""What a worker does with tasks of Django: statuses, errors, signals, context."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.test import TransactionTestCase

import outlast
from outlast.contrib.django import app
from outlast.contrib.django import tasks_api as api
from outlast.model.job import State
from shop import tasks
from shop.checks.work import work
from shop.models import Order

SUCCESSFUL, FAILED = api.TaskResultStatus.SUCCESSFUL, api.TaskResultStatus.FAILED


class Working(TransactionTestCase):
    def test_a_task_succeeds(self):
        with transaction.atomic():
            results = [tasks.mail.enqueue("ann"), tasks.mail_later.enqueue("bob")]
        work(*results)
        self.assertEqual([each.return_value for each in results], ["hello, ann", "later, bob"])
        for result in results:
            self.assertEqual((result.status, result.attempts, result.errors), (SUCCESSFUL, 1, []))
            self.assertTrue(result.is_finished)
            self.assertEqual(result.started_at, result.last_attempted_at)
            self.assertLessEqual(result.started_at, result.finished_at)
            self.assertTrue(result.worker_ids[0].isdigit())

    def test_one_that_fails_is_retried_and_its_errors_are_kept(self):
        results = [tasks.fails.enqueue(), tasks.leaves.enqueue(), tasks.returns_an_object.enqueue()]
        work(*results)
        classes = [each.errors[-1].exception_class for each in results]
        self.assertEqual(classes, [tasks.OutOfPaper, SystemExit, TypeError])
        for result in results:
            self.assertEqual((result.status, result.attempts), (FAILED, 2))
            self.assertEqual(len(result.errors), 2)
            with self.assertRaisesMessage(ValueError, "Task failed"):
                _ = result.return_value
        self.assertTrue(
            results[0].errors[0].traceback.endswith("shop.tasks.OutOfPaper: no paper\n")
        )
        self.assertIn("Unsupported type", results[2].errors[0].traceback)

    def test_the_context_is_that_of_the_attempt(self):
        result = tasks.who.enqueue()
        work(result)
        self.assertEqual(result.return_value, [result.id, 1])

    def test_tasks_use_the_database(self):
        Order.objects.create(title="Emma")
        results = [tasks.titles.enqueue(), tasks.session.enqueue()]
        work(*results)
        self.assertEqual(results[0].return_value, ["Emma"])
        if connection.vendor != "sqlite":  # and leave no connection of theirs
            with connection.cursor() as cursor:
                pids = [results[1].return_value]
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", [pids])
                self.assertEqual(cursor.fetchone(), (0,))

    def test_a_cancelled_job_has_failed(self):
        result = tasks.mail.enqueue("ann")
        app.cancel_sync(int(result.id))
        app.close_sync()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (FAILED, 0))
        self.assertEqual(result.errors[0].exception_class.__name__, "JobCancelled")

    def test_one_of_another_backend_is_run_where_it_is_sent(self):
        result = tasks.elsewhere.using(backend="default").enqueue()
        work(result)
        self.assertEqual(result.return_value, "here")

    def test_native_tasks_run_beside_them(self):
        order = Order.objects.create(title="Emma")
        with transaction.atomic():
            job = tasks.print_order.using(connection=connection).enqueue_sync(order.pk, 2)
        result = tasks.count.enqueue()
        work(result)
        self.assertEqual(job.result_sync(timeout=60), "2 pages in attempt 1")
        app.close_sync()
        order.refresh_from_db()
        self.assertEqual(order.printed, 2)

    def test_a_flow_needs_no_transaction_of_the_caller(self):
        pages = [tasks.print_order.call(order, 1) for order in (7, 8)]
        flow = app.enqueue_sync(outlast.group(pages).then(tasks.total.call(outlast.RESULTS)))
        self.assertEqual(flow.progress_sync(), {State.QUEUED: 2, State.BLOCKED: 1})
        app.close_sync()


class Signals(TransactionTestCase):
    def setUp(self) -> None:
        self.told: list[Any] = []
        for signal in (api.task_started, api.task_finished):
            signal.connect(self.receive)
            self.addCleanup(signal.disconnect, self.receive)

    def receive(self, signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
        name = "started" if signal is api.task_started else "finished"
        self.told.append((name, task_result.status.value, task_result.attempts))
        if task_result.task == tasks.who:
            raise ZeroDivisionError

    def test_a_task_that_succeeds(self):
        for each in (tasks.mail, tasks.mail_later):
            self.told.clear()
            work(each.enqueue("ann"))
            self.assertEqual(self.told, [("started", "RUNNING", 1), ("finished", "SUCCESSFUL", 1)])

    def test_one_that_fails_has_finished_after_its_last_attempt(self):
        with self.assertLogs(api.PACKAGE, "ERROR") as logged:
            work(tasks.fails.enqueue())
        self.assertEqual([each[0] for each in self.told], ["started", "started", "finished"])
        self.assertEqual(self.told[-1], ("finished", "FAILED", 2))
        self.assertIn("no paper", logged.output[0])

    def test_a_receiver_that_raises_fails_no_attempt(self):
        result = tasks.who.enqueue()
        with self.assertLogs("django.dispatch", "ERROR"):
            work(result)
        self.assertEqual((result.status, result.attempts), (SUCCESSFUL, 1))
