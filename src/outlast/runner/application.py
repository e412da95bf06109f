"""Imports the user's application by ``MODULE:APP``, or a function by ``MODULE:FUNCTION``."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from outlast.base.config import absolute
from outlast.base.greenlets import find_greenlets
from outlast.client.app import App
from outlast.client.stores import refuse_enqueuing
from outlast.errors import ApplicationError, describe, text_of

MODULES_SHOWN = 5  # of a package without an application
OUR_PACKAGE = "outlast"  # has an application for a worker that only runs commands


def load_app(spec: str) -> App:
    """Import ``MODULE:APP`` and return the App. Raises ApplicationError, saying what to do, chained
    to an error inside the module."""
    module_name, attribute, module = _load(spec, "an application", "MODULE:APP", "shop.jobs:app")
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        raise ApplicationError(_not_an_app(module_name, attribute, module, app))
    return app


def load_function(spec: str) -> Callable[[], object]:
    """Import ``MODULE:FUNCTION`` and return it. Raises ApplicationError, like ``load_app``."""
    name, attribute, module = _load(spec, "a function", "MODULE:FUNCTION", "shop.telemetry:start")
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ApplicationError(
            f"{name!r} has no {attribute!r}"
            if function is None
            else f"{name}:{attribute} is of class {type(function).__name__}, not a function"
        )
    found: Callable[[], object] = function
    return found


def refuse_greenlets() -> None:
    """Raise ApplicationError if gevent or eventlet has replaced Python's threads or queues: as
    greenlets, heartbeats, plain functions and the event loop would wait for each other, without an
    error. A process that only enqueues may be patched."""
    if (made := find_greenlets()) is not None:
        raise ApplicationError(
            f"{made}, but workers need real threads: call it where your web server starts, not in a"
            " module that a worker imports; for many calls at once write async tasks, and run them"
            " with --concurrency 100"
        )


def _load(spec: str, what: str, form: str, example: str) -> tuple[str, str, object]:
    module_name, colon, attribute = spec.partition(":")
    if not module_name or not colon or not attribute:
        is_here = module_name.isidentifier() and Path(f"{module_name}.py").is_file()
        meant = f"{module_name}:{example.partition(':')[2]}" if is_here else example
        raise ApplicationError(f"{spec!r} does not name {what}; write {form}, as in {meant}")
    if module_name.endswith(".ipynb"):
        raise ApplicationError(
            f"{module_name!r} is a notebook: put the application and its tasks into a file, for"
            f" example with a cell %%writefile jobs.py, and name that: jobs:{attribute}"
        )
    if dotted := _dotted(module_name):
        is_elsewhere = os.path.relpath(module_name).startswith(os.pardir)
        where = "start in its folder, and " if is_elsewhere else ""
        raise ApplicationError(
            f"{module_name!r} is a file; {where}name its module: {dotted}:{attribute}"
        )
    if module_name.partition(".")[0] != OUR_PACKAGE:
        _look_here_too()
    return module_name, attribute, _import(module_name)


def _look_here_too() -> None:
    """Find modules in the working directory first. Only for an application of the user: a worker
    that only runs commands may stand in a folder that others can write to."""
    here = str(absolute("."))
    if here not in sys.path:
        sys.path.insert(0, here)


def _dotted(name: str) -> str | None:
    """Return the module whose file has this path, or None if the name is not a path."""
    if "/" not in name and not Path(name).is_file():
        return None
    path = os.path.relpath(name, absolute("."))
    if path.startswith(os.pardir):
        path = os.path.basename(path)
    return ".".join(Path(path).with_suffix("").parts)


def _import(name: str) -> object:
    try:
        with refuse_enqueuing(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            near = get_close_matches(name, [each.stem for each in Path().glob("*.py")], n=1)
            hint = (
                f"did you mean {near[0]}" if near else "is it spelt right, and is this its folder"
            )
            raise ApplicationError(f"no module named {name!r}: {hint}?") from error
        raise ApplicationError(f"cannot import {name!r}: {text_of(error)}") from error
    except Exception as error:
        raise ApplicationError(f"cannot import {name!r}: {describe(error)}") from error


def _not_an_app(name: str, attribute: str, module: object, found: object) -> str:
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    hint = f"; there is {name}:{apps[0]}" if apps else _where_else(name, module)
    if name == "__main__":
        return "'__main__' is another module in each program: put the application into a file"
    if found is None:
        return f"{name!r} has no {attribute!r}{hint}"
    return f"{name}:{attribute} is of class {type(found).__name__}, not an outlast.App{hint}"


def _where_else(name: str, module: object) -> str:
    found = [each.name for each in pkgutil.iter_modules(getattr(module, "__path__", ()))]
    inside = ", ".join(f"{name}.{each}" for each in sorted(found)[:MODULES_SHOWN])
    if inside:
        return f"; is it in one of its modules ({inside})?"
    return "; write app = outlast.App(URL) in it, or name the module that has the application"
