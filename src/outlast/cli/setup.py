"""``outlast worker --setup``: the one thing of the user's that runs in the worker's own process.

Traces and error reports of an attempt whose process has died are made there, so the library that
makes them has to be set up there, too.
"""

from __future__ import annotations

import contextlib
import sys

from outlast.cli.errors import AppImportError, traceback_tail
from outlast.errors import ApplicationError, describe, text_of


def run_setup(spec: str) -> None:
    """Import and call MODULE:FUNCTION. What it prints goes to stderr.

    Raises AppImportError with the tail of its own traceback.
    """
    from outlast.runner.application import load_function

    try:
        with contextlib.redirect_stdout(sys.stderr):
            load_function(spec)()
    except ApplicationError as error:
        raise AppImportError(
            f"--setup: {text_of(error)}", traceback_tail(error.__cause__)
        ) from error
    except Exception as error:
        raise AppImportError(
            f"--setup: {spec} has failed: {describe(error)}", traceback_tail(error)
        ) from error
    except SystemExit as error:
        raise AppImportError(f"--setup: {spec} ends the program ({text_of(error)})") from error
