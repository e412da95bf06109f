"""Hooks of the project that use the database leave no connection of theirs in a test."""

from __future__ import annotations

from django.db import connection
from django.test import TransactionTestCase

from outlast.contrib.django.testing import isolate
from shop import tasks

SESSIONS = """
SELECT pid, query FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Hooks(TransactionTestCase):
    def test_the_database_can_be_dropped(self):
        with isolate() as jobs:
            results = [tasks.session.enqueue(), tasks.titles.enqueue()]
            self.assertEqual(jobs.drain_sync(), 2)
            for result in results:
                result.refresh()
                self.assertEqual((result.is_finished, result.errors), (True, []))
        if connection.vendor != "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(SESSIONS)
                self.assertEqual(cursor.fetchall(), [])
