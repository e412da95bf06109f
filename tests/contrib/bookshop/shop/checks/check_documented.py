"""What Django promises of each backend, and its own tests check of those that it has."""

from __future__ import annotations

from typing import Any

import django
from django.test import TestCase
from django.utils import timezone

from outlast.contrib.django import tasks_api as api
from outlast.contrib.django.models import JobRecord
from shop import tasks

if django.VERSION >= (6, 0):
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import InvalidTask
else:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import InvalidTaskError as InvalidTask


def outer() -> Any:
    def inner() -> None:
        pass

    return inner


class AsDocumented(TestCase):
    def test_what_no_backend_takes_is_an_invalid_task(self):
        naive = timezone.now().replace(tzinfo=None)
        wrong: list[dict[str, Any]] = [{"priority": each} for each in (-101, 101, 1.5)]
        for options in (*wrong, {"run_after": naive}, {"queue_name": "unknown"}):
            with self.subTest(options), self.assertRaises(InvalidTask):
                tasks.count.using(**options).enqueue()
        for function in (outer(), len, lambda: None):
            with self.subTest(function), self.assertRaises(InvalidTask):
                task(function)
        with self.assertRaises(InvalidTask):
            task(takes_context=True)(tasks.mail.func)
        self.assertEqual(JobRecord.objects.count(), 0)

    def test_a_log_tells_of_each_job(self):
        with self.assertLogs(api.PACKAGE, "DEBUG") as logged:
            result = tasks.count.enqueue()
        self.assertIn(f"id={result.id} path=shop.tasks.count enqueued", logged.output[0])

    async def test_another_request_reads_a_result_and_refreshes_it(self):
        first = await tasks.count.aenqueue(1, a=2)
        again = await default_task_backend.aget_result(first.id)
        await again.arefresh()
        self.assertEqual((again.args, again.kwargs, again.errors), ([1], {"a": 2}, []))
        self.assertEqual((again.is_finished, again.worker_ids, again.attempts), (False, [], 0))
