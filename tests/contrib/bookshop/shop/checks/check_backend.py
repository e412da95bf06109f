"""The backend by the API of Django's tasks, in transactions that each test rolls back."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import timedelta
from functools import partial
from importlib import import_module
from io import StringIO
from types import SimpleNamespace
from typing import Any
from unittest import mock

import django
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections, models, transaction
from django.test import SimpleTestCase, TestCase, override_settings
from django.utils import timezone
from django.utils.safestring import mark_safe

from outlast.contrib.django import Backend, app, call
from outlast.contrib.django import tasks_api as api
from outlast.contrib.django.database import url_of
from outlast.contrib.django.models import AttemptRecord, JobRecord, ScheduleRecord
from outlast.errors import BadArguments, ConfigError, UsageError
from outlast.store.backend import resolve_url
from shop import tasks
from shop.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import default_task_backend, task, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
else:
    from django_tasks import default_task_backend, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch

READY = api.TaskResultStatus.READY


class Size(models.TextChoices):
    SMALL = "s"


def jobs() -> int:
    return JobRecord.objects.count()


class Enqueuing(TestCase):
    def test_the_backend_has_all_four_flags(self):
        backend = task_backends["default"]
        self.assertIsInstance(backend, Backend)
        flags = ("defer", "async_task", "get_result", "priority")
        self.assertTrue(all(getattr(backend, f"supports_{flag}") for flag in flags))

    def test_a_result_is_ready_and_has_what_was_said(self):
        result = tasks.mail.enqueue("ann", text="hi")
        self.assertEqual(
            (result.status, result.args, result.kwargs), (READY, ["ann"], {"text": "hi"})
        )
        self.assertEqual((result.task, result.backend), (tasks.mail, "default"))
        self.assertIsNone(result.started_at or result.finished_at or result.last_attempted_at)
        self.assertIsInstance(result.id, str)
        self.assertLess(len(result.id), 64)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value
        row = JobRecord.objects.get(pk=result.id)
        self.assertEqual((row.task, row.queue, row.priority), ("shop.tasks.mail", "mail", 5))

    async def test_so_does_one_that_was_awaited(self):
        for each in (tasks.count, tasks.mail_later):
            result = await each.aenqueue("ann")
            self.assertEqual((result.status, result.args), (READY, ["ann"]))
            self.assertEqual((await each.aget_result(result.id)).id, result.id)

    def test_a_transaction_sees_what_it_has_enqueued(self):
        result = tasks.mail.enqueue("ann")
        again = tasks.mail.get_result(result.id)
        self.assertEqual((again.id, again.task, again.args), (result.id, tasks.mail, ["ann"]))
        self.assertEqual((again.kwargs, again.status, again.attempts), ({}, READY, 0))
        self.assertLess(abs(again.enqueued_at - result.enqueued_at), timedelta(minutes=1))
        again.refresh()
        self.assertEqual(again.status, READY)

    def test_an_order_and_its_job_are_one_transaction(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Order.objects.create(title="Emma")
            lost = tasks.mail.enqueue("ann")
            raise ZeroDivisionError
        self.assertEqual((Order.objects.count(), jobs()), (0, 0))
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.mail.get_result(lost.id)
        with transaction.atomic():
            Order.objects.create(title="Emma")
            tasks.mail.enqueue("ann")
        self.assertEqual((Order.objects.count(), jobs()), (1, 1))

    def test_a_native_task_is_part_of_it_too(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            lost = tasks.print_order.enqueue_sync(1, 2)
            app.enqueue_many_sync([tasks.print_order.call(1, 2)] * 2)
            self.assertEqual((jobs(), lost.created), (3, True))
            raise ZeroDivisionError
        self.assertEqual(jobs(), 0)

    def test_what_is_enqueued_on_commit_is_stored_then(self):
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(partial(tasks.mail.enqueue, "ann"))
            self.assertEqual(jobs(), 0)
        self.assertEqual(jobs(), 1)

    def test_options_of_a_call_are_stored(self):
        at = timezone.now() + timedelta(hours=1)
        result = tasks.count.using(priority=-7, queue_name="mail", run_after=at).enqueue()
        row = JobRecord.objects.get(pk=result.id)
        self.assertEqual((row.priority, row.queue), (-7, "mail"))
        self.assertLess(abs(row.run_at - at), timedelta(milliseconds=1))
        self.assertEqual(tasks.count.get_result(result.id).task, result.task)

    def test_without_time_zones_times_are_of_the_server_s_zone(self):
        with override_settings(USE_TZ=False):
            at = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
            result = tasks.count.using(run_after=at).enqueue()
            again = tasks.count.get_result(result.id)
            self.assertIsNone(again.enqueued_at.tzinfo)
            self.assertEqual(again.task.run_after, at)
            self.assertLess(abs(again.enqueued_at - timezone.now()), timedelta(minutes=1))

    def test_limits_are_those_of_the_backend(self):
        few, many = tasks.count.enqueue(), tasks.count.using(backend="patient").enqueue()
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, policy FROM outlast_jobs ORDER BY id")
            policies = dict(cursor.fetchall())
        self.assertIn('"retries":1', policies[int(few.id)])
        self.assertIn('"retries":9,"timeout":60', policies[int(many.id)])

    def test_jobs_of_a_backend_are_under_its_limits(self):
        few, many = tasks.count.enqueue(), tasks.count.using(backend="patient").enqueue()
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, needs FROM outlast_jobs ORDER BY id")
            needs = dict(cursor.fetchall())
        self.assertIsNone(needs[int(few.id)])
        self.assertIn('"press"', needs[int(many.id)])

    def test_texts_of_other_classes_are_texts(self):
        tasks.count.enqueue(mark_safe("<b>"), Size.SMALL, {1: "a"})
        args = tasks.count.get_result(str(JobRecord.objects.get().pk)).args
        self.assertEqual(args, ["<b>", "s", {"1": "a"}])

    def test_what_is_no_json_is_a_type_error(self):
        for wrong in (timezone.now(), object(), {1, 2}, float("nan"), "\ud800"):
            with self.subTest(wrong), self.assertRaisesMessage(TypeError, "shop.tasks.count"):
                tasks.count.enqueue(wrong)
        for args, kwargs, place in (([1, Order()], {}, "2"), ([], {"a": 1, "b": Order()}, "'b'")):
            words = f"argument {place} of shop.tasks.count is not JSON: Unsupported type"
            with self.assertRaisesMessage(TypeError, words):
                tasks.count.enqueue(*args, **kwargs)
        self.assertEqual(jobs(), 0)

    def test_a_call_that_does_not_fit_is_a_type_error(self):
        for args, kwargs in (((), {}), (("a", "b"), {}), (("a",), {"txt": "b"})):
            with self.assertRaisesMessage(TypeError, "shop.tasks.mail(to"):
                tasks.mail.enqueue(*args, **kwargs)
        with self.assertRaises(TypeError):
            tasks.who.enqueue("a context is not passed")
        self.assertEqual(jobs(), 0)

    def test_more_than_a_job_may_have_is_refused(self):
        with self.assertRaisesMessage(BadArguments, "bytes of JSON"):
            tasks.count.enqueue("a" * 2**20)

    def test_a_queue_that_no_worker_can_be_told_of_is_refused(self):
        for name in ("a b", "a,b"):
            with self.assertRaisesMessage(InvalidTask, "without blanks or commas"):
                tasks.count.using(backend="patient", queue_name=name)
        with self.assertRaises(InvalidTask):
            tasks.count.using(queue_name="unknown")

    def test_unknown_results(self):
        for wrong in ("0", "123456", "-1", "a", "", "٣", str(2**70)):
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(wrong)
        result = tasks.count.enqueue()
        with self.assertRaises(TaskResultMismatch):
            tasks.mail.get_result(result.id)

    def test_a_job_of_a_native_task_is_no_result(self):
        job = tasks.print_order.using(connection=connection).enqueue_sync(1, 2)
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(str(job.id))

    def test_no_connection_is_opened_beside_django_s(self):
        app.close_sync()
        tasks.mail.get_result(tasks.mail.enqueue("ann").id)
        tasks.print_order.using(connection=connection).enqueue_sync(1, 2)
        tasks.print_order.enqueue_sync(1, 2)
        app.enqueue_many_sync([tasks.print_order.call(1, 2), call(tasks.mail, "ann")])
        self.assertEqual((app.stores._stores, jobs()), ({}, 5))

    def test_a_signal_tells_of_each_job(self):
        told: list[Any] = []

        def receive(sender: Any, task_result: Any, **_: Any) -> None:
            told.append((sender, task_result.id))

        api.task_enqueued.connect(receive)
        try:
            result = tasks.count.enqueue()
        finally:
            api.task_enqueued.disconnect(receive)
        self.assertEqual(told, [(Backend, result.id)])

    def test_calls_for_schedules_and_batches(self):
        one = call(tasks.mail, "ann", text="hi")
        stored = JobRecord.objects.get(pk=tasks.mail.enqueue("ann", text="hi").id)
        self.assertEqual((one.job.task, one.job.args), (stored.task, stored.args))
        self.assertEqual((one.job.queue, one.job.priority), ("mail", 5))
        self.assertEqual(call(tasks.print_order, 1, pages=2).job.task, "shop.tasks.print_order")

    def test_two_apps_have_a_task_of_one_name(self):
        def print_order(order_id: int) -> None:
            pass

        print_order.__module__ = "other.tasks"
        self.addCleanup(app.tasks.pop, "other.tasks.print_order")
        self.assertEqual(app.task(print_order).name, "other.tasks.print_order")
        self.assertEqual(tasks.print_order.name, "shop.tasks.print_order")


class Loops(TestCase):
    def awaitable(self) -> list[Any]:
        native = tasks.print_order
        return [
            tasks.count.aenqueue,
            partial(native.enqueue, 1, 2),
            partial(app.enqueue_many, [native.call(1, 2)]),
        ]

    def test_a_loop_inside_atomic_is_refused(self):
        for enqueue in self.awaitable():
            with transaction.atomic(), self.assertRaisesMessage(UsageError, "inside atomic()"):
                asyncio.run(enqueue())
        self.assertEqual(jobs(), 0)

    def test_by_async_to_sync_it_is_part_of_the_transaction(self):
        with transaction.atomic():
            for enqueue in self.awaitable():
                async_to_sync(enqueue)()
            self.assertEqual(jobs(), 3)
            transaction.set_rollback(True)
        self.assertEqual(jobs(), 0)

    async def test_a_plain_call_in_a_loop_is_refused(self):
        with self.assertRaisesMessage(UsageError, "await aenqueue()"):
            tasks.count.enqueue()


class Settings(TestCase):
    def tasks_with(self, **options: Any) -> Any:
        backend = {"BACKEND": "outlast.contrib.django.Backend", "OPTIONS": options}
        return override_settings(TASKS={"default": backend})

    def test_a_database_that_is_not_there(self):
        words = "DATABASES has default"
        with self.tasks_with(database="other"), self.refused(words):
            _ = task_backends["default"]

    def test_an_option_that_there_is_not(self):
        for options, words in (({"retry": 1}, "no option retry"), ({"retries": -1}, "retries")):
            with self.tasks_with(**options), self.refused(words):
                _ = task_backends["default"]

    def test_a_store_in_another_database(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with self.tasks_with(url=f"sqlite:///{folder}/other.db"):
            with self.refused("another Outlast schema"):
                tasks.count.enqueue()
            app.close_sync()
        self.assertEqual(jobs(), 0)

    def test_two_stores_are_refused(self):
        one = {"BACKEND": "outlast.contrib.django.Backend", "OPTIONS": {"url": "sqlite:///a"}}
        two = {**one, "OPTIONS": {"url": "sqlite:///b"}}
        both = override_settings(TASKS={"default": one, "two": two})
        with both, self.refused("more than one url"):
            tasks.count.enqueue()

    def test_limits_that_no_job_can_have_are_refused(self):
        some = {"running": 1}
        limits = {
            "press": some,
            "own": {**some, "per": "tenant"},
            "key": {**some, "per": "limit_key"},
        }
        for names, words in (
            ("press", "limits must be a list of names"),
            (["pres"], "limits has 'pres'; the limits in OUTLAST['LIMITS'] are: key, own, press"),
            (["own"], "'own' is a limit per tenant, which calls of Django's tasks cannot name"),
            (["key"], "'key' is a limit per limit_key"),
            (["press", "press"], "limits names a limit twice"),
        ):
            wrong = override_settings(OUTLAST={"LIMITS": limits})
            with wrong, self.tasks_with(limits=names):
                with self.refused(words):
                    tasks.count.enqueue()
                ((found, name),) = [(each.msg, each.id) for each in default_task_backend.check()]
                self.assertIn(words, found)
                self.assertEqual(name, "outlast.E003")
        with self.tasks_with(fair="tenant"), self.refused("no option fair"):
            _ = task_backends["default"]

    def test_an_ordered_limit_refuses_other_priorities(self):
        limits = {"press": {"running": 1, "ordered": True}}
        with override_settings(OUTLAST={"LIMITS": limits}), self.tasks_with(limits=["press"]):
            tasks.count.enqueue()
            with self.assertRaisesMessage(ConfigError, "its jobs have its own priority, 0"):
                tasks.count.using(priority=1).enqueue()

    def test_wrong_limits_are_errors_of_the_settings(self):
        for wrong, words in (
            ([], "OUTLAST has list: it must be a dict whose only key is LIMITS"),
            ({"limits": {}}, "OUTLAST has limits"),
            ({"LIMITS": ["press"]}, "OUTLAST['LIMITS'] must be a dict, such as"),
            ({"LIMITS": {"press": 1}}, "OUTLAST['LIMITS']['press'] must be a dict"),
            ({"LIMITS": {"press": {}}}, "OUTLAST['LIMITS']['press']: a limit needs running=20"),
            ({"LIMITS": {"press": {"rate": "1/x"}}}, "rate must be such as '600/min'"),
            ({"LIMITS": {"a b": {"running": 1}}}, "OUTLAST['LIMITS']['a b']: a limit's name must"),
        ):
            with override_settings(OUTLAST=wrong):
                with self.assertRaises(SystemCheckError) as raised:
                    call_command("check")
                self.assertIn(words, str(raised.exception))
                self.assertIn("outlast.E002", str(raised.exception))
                with self.refused(words):
                    app.limit("press")
        call_command("check", stdout=StringIO())

    def refused(self, words: str) -> Any:
        return self.assertRaisesMessage(ImproperlyConfigured, words)

    def test_a_database_that_is_no_store_gets_no_tables(self):
        migration = import_module("outlast.contrib.django.migrations.0001_schema")
        with mock.patch.object(migration, "migrate") as migrate:
            for alias in ("other", "default"):
                editor = SimpleNamespace(connection=SimpleNamespace(alias=alias))
                migration.bring_up_to_date(None, editor)
        self.assertEqual([call.args[0].alias for call in migrate.mock_calls], ["default"])

    def test_rows_are_read_where_the_store_is(self):
        for model in (JobRecord, AttemptRecord, ScheduleRecord):
            with mock.patch("outlast.contrib.django.models.database", return_value="other"):
                self.assertEqual(model.objects.filter(pk=1).db, "other")
            self.assertEqual(model.objects.filter(pk=1).db, "default")

    def test_each_migration_is_written(self):
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)

    def test_the_app_has_to_be_installed(self):
        self.assertEqual(default_task_backend.check(), [])
        with self.modify_settings(INSTALLED_APPS={"remove": "outlast.contrib.django"}):
            self.assertIn("outlast.E001", [each.id for each in default_task_backend.check()])

    def test_settings_of_sqlite_that_do_not_do_are_warnings(self):
        here = connections["default"]
        for number, settings in (("1", {"NAME": ":memory:"}), ("2", {"OPTIONS": {}})):
            with mock.patch.dict(here.settings_dict, settings):
                found = [each.id for each in default_task_backend.check()]
            self.assertEqual(found, [f"outlast.W00{number}"] * (here.vendor == "sqlite"))


class Urls(SimpleTestCase):
    def url(self, vendor: str = "postgresql", **settings: Any) -> str:
        class Connection:
            alias = "default"
            settings_dict = {
                "NAME": "shop",
                "USER": "",
                "PASSWORD": "",
                "HOST": "",
                "PORT": "",
                "OPTIONS": {},
                **settings,
            }

        Connection.vendor = vendor  # type: ignore[attr-defined]
        return url_of(Connection())

    def test_urls_of_servers(self):
        for settings, url in (
            ({}, "postgresql:///shop"),
            ({"HOST": "db", "PORT": 5433}, "postgresql://db:5433/shop"),
            (
                {"HOST": "db", "USER": "a@b", "PASSWORD": "p/w #1"},
                "postgresql://a%40b:p%2Fw%20%231@db/shop",
            ),
            ({"HOST": "/run/pg", "USER": "a"}, "postgresql://a@/shop?host=/run/pg"),
            (
                {"HOST": "db", "OPTIONS": {"sslmode": "verify-full", "pool": True}},
                "postgresql://db/shop?sslmode=verify-full",
            ),
            (
                {"OPTIONS": {"options": "-c search_path=jobs"}},
                "postgresql:///shop?options=-c%20search_path%3Djobs",
            ),
        ):
            with self.subTest(settings):
                self.assertEqual(self.url(**settings), url)
                self.assertEqual(resolve_url(url), url)

    def test_hosts_as_libpq_reads_them(self):
        socket = {"HOST": "/run/pg", "USER": "a", "PORT": 5433}
        for settings, url in (
            (socket, "postgresql://a@/shop?host=/run/pg&port=5433"),
            ({**socket, "HOST": ""}, "postgresql://a@/shop?port=5433"),
            ({"HOST": "::1"}, "postgresql://[::1]/shop"),
            ({"HOST": "::1", "PORT": "5433"}, "postgresql://[::1]:5433/shop"),
            (
                {"HOST": "a,::1", "PORT": "5433"},
                "postgresql:///shop?host=a%2C%5B%3A%3A1%5D&port=5433",
            ),
            (
                {"HOST": "a,b", "PORT": "5433,5434"},
                "postgresql:///shop?host=a%2Cb&port=5433%2C5434",
            ),
            ({"HOST": "a,b"}, "postgresql:///shop?host=a%2Cb"),
            (
                {"HOST": "/run/a,/run/b", "PORT": "1"},
                "postgresql:///shop?host=/run/a%2C/run/b&port=1",
            ),
            (
                {"OPTIONS": {"service": "shop", "keepalives": 1}, "NAME": ""},
                "postgresql:///?service=shop",
            ),
        ):
            with self.subTest(settings):
                self.assertEqual(self.url(**settings), url)
                self.assertEqual(resolve_url(url), url)

    def test_a_parameter_that_the_driver_does_not_know(self):
        with self.assertRaisesMessage(ImproperlyConfigured, "channel_binding: the driver"):
            self.url(OPTIONS={"channel_binding": "require"})

    def test_what_cannot_be_a_store(self):
        with self.assertRaisesMessage(ImproperlyConfigured, "OPTIONS['database']"):
            self.url("mysql")
        with self.assertRaisesMessage(ImproperlyConfigured, "OPTIONS['url']"):
            self.url(OPTIONS={"assume_role": "shop"})


@task
def noop() -> None:
    """A task of a module that is not called ``tasks``."""


class Modules(TestCase):
    def test_a_task_of_any_module_has_results(self):
        result = noop.enqueue()
        self.assertEqual(noop.get_result(result.id).status, READY)
