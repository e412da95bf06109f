"""Hooks of the project that use the database run around the jobs of a test.

On PostgreSQL Django drops the test database in the end, which fails where they left a connection.
"""

from __future__ import annotations

from django.test import TransactionTestCase

from outlast.contrib.django.testing import isolate
from shop import tasks


class Hooks(TransactionTestCase):
    def test_jobs_run_inside_them(self):
        with isolate() as jobs:
            results = [tasks.session.enqueue(), tasks.titles.enqueue()]
            self.assertEqual(jobs.drain_sync(), 2)
            for result in results:
                result.refresh()
                self.assertEqual((result.is_finished, result.errors), (True, []))
