"""What `manage.py flush` deletes, which Django calls after each `TransactionTestCase`."""

from __future__ import annotations

import io
from typing import Any
from unittest import mock

from django.core.management import call_command
from django.db import connection, transaction
from django.test import TransactionTestCase

from outlast.contrib.django.models import JobRecord
from shop import tasks
from shop.models import Order


def ask(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def flush(**options: Any) -> str:
    out = io.StringIO()
    call_command("flush", verbosity=0, stdout=out, **options)
    return out.getvalue()


class Flushing(TransactionTestCase):
    def setUp(self) -> None:
        self.assertEqual(JobRecord.objects.count(), 0)  # also after the other tests here
        self.id = int(tasks.mail.enqueue("ann").id)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO outlast_pauses (kind, name, paused_at) VALUES ('queue', 'mail', 0)"
            )

    def test_jobs_are_deleted_and_the_store_stays_the_same(self):
        store_id = ask("SELECT store_id FROM outlast_schema")
        flush(interactive=False)
        self.assertEqual(JobRecord.objects.count(), 0)
        self.assertEqual(ask("SELECT count(*) FROM outlast_pauses"), 0)
        self.assertEqual(ask("SELECT store_id FROM outlast_schema"), store_id)
        self.assertGreater(int(tasks.mail.enqueue("bob").id), self.id)

    def test_someone_who_is_asked_may_say_no(self):
        Order.objects.create(title="Emma")
        for answer, left in (("no", 1), ("yes", 0)):
            with mock.patch("builtins.input", return_value=answer) as asked:
                told = flush()
            self.assertIn("with all its jobs", asked.call_args.args[0])
            self.assertEqual("Nothing was deleted" in told, bool(left))
            self.assertEqual((Order.objects.count(), JobRecord.objects.count()), (left, left))

    def test_in_a_database_that_is_no_store_there_is_nothing_of_ours(self):
        with mock.patch(
            "outlast.contrib.django.management.commands.flush.database", return_value="other"
        ):
            flush(interactive=False)
        self.assertEqual(JobRecord.objects.count(), 1)

    def test_it_can_be_done_where_a_transaction_is_open(self):
        with transaction.atomic():
            flush(interactive=False)
        self.assertEqual(JobRecord.objects.count(), 0)
