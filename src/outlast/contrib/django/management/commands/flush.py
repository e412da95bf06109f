"""``manage.py flush``: do what Django's command does, and empty Outlast's own tables, which Django
does not manage. So they are empty after each ``TransactionTestCase``, which calls this command."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush

from outlast.contrib.django.database import empty
from outlast.contrib.django.project import database

_QUESTION = """\
This deletes all data in the database {!r}, with all its jobs, including jobs that have not run yet.
It cannot be undone. Stop the workers first.
Type 'yes' to go on, or 'no' to stop: """


class FlushCommand(flush.Command):
    """Django's command, which also deletes jobs, workers, schedules and the rows about them."""

    def handle(self, **options: Any) -> None:
        """Ask for confirmation as Django does, and delete. If Django's command fails, CommandError,
        and nothing is deleted."""
        alias = options["database"]
        if alias != database():
            super().handle(**options)
            return
        if options["interactive"] and input(_QUESTION.format(alias)) != "yes":
            self.stdout.write("Nothing was deleted.")
            return
        super().handle(**{**options, "interactive": False})
        empty(alias)


Command = FlushCommand
