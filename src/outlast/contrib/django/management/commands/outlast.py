"""``manage.py outlast …``: run the whole command line on the project's own store.

``manage.py outlast worker`` is ``outlast worker`` with the project as its application; commands
that only read or change jobs use the database that Django uses.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from outlast.base.config import URL_VARIABLE
from outlast.cli import main
from outlast.cli.errors import WRONG_USAGE
from outlast.cli.program import limit_end
from outlast.contrib.django.project import store_url
from outlast.errors import text_of

PROGRAM = "python manage.py outlast"
APPLICATION = "outlast.contrib.django.runner:app"
_OF_DJANGO = ("--settings", "--pythonpath")
# These commands find the store by the application: their runners would inherit a URL in the
# environment, with its password.
_WITH_APPLICATION = {"worker", "dev", "enqueue", "run-task", "crash-test"}


class OutlastCommand(BaseCommand):
    """``manage.py outlast …``: takes the arguments of ``outlast``."""

    help = "Runs the command line of Outlast on this project: manage.py outlast --help"
    requires_system_checks: Any = []

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """Pass all arguments on to ``outlast`` unchanged."""
        try:
            code = _run(_without_djangos(argv[2:]))
        except ImproperlyConfigured as error:
            self.stderr.write(f"outlast: {text_of(error)}")
            code = WRONG_USAGE
        limit_end(code)
        sys.exit(code)

    def add_arguments(self, parser: Any) -> None:
        """Accept the arguments of ``call_command``."""
        parser.add_argument("args", nargs="*", metavar="ARGUMENT")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run a command for ``call_command("outlast", …)``. CommandError unless it exits with 0."""
        code = _run([str(each) for each in args])
        if code:
            raise CommandError(f"outlast {' '.join(map(str, args))} has failed", returncode=code)


Command = OutlastCommand


def _run(argv: list[str]) -> int:
    folders = [sys.path[0], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, folders)))
    wanted = next((each for each in argv if not each.startswith("-")), None)
    if wanted is not None and wanted not in _WITH_APPLICATION and "--help" not in argv:
        os.environ[URL_VARIABLE] = store_url()
    return main(argv, app=APPLICATION, program=PROGRAM)


def _without_djangos(argv: list[str]) -> list[str]:
    """Return the arguments without the options that manage.py has already handled."""
    end = argv.index("--") if "--" in argv else len(argv)
    kept, given = [], iter(argv[:end])
    for each in given:
        if each in _OF_DJANGO:
            next(given, None)
        elif each.partition("=")[0] not in _OF_DJANGO:
            kept.append(each)
    return kept + argv[end:]
