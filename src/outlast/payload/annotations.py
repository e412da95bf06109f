"""What a function says of itself: its parameters and their types, on each version of Python."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any

from outlast.errors import ConfigError, text_of


def read_parameters(fn: Callable[..., Any], task: str) -> inspect.Signature:
    """Return the parameters of a task's function; ConfigError if they cannot be known."""
    try:
        return _inspect(fn)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"task {task}: its parameters are not known: {text_of(error)}") from error


def _inspect(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # where annotations are evaluated late, and may not be at all
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(fn, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(fn, "__annotations__", {}))


def read_annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's annotations; those that cannot be resolved here (names imported for
    type checkers only) are left out."""
    fn = inspect.unwrap(fn)
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except Exception:
        raw = _annotations(fn)
        found = {name: _hint(fn, annotation) for name, annotation in raw.items()}
        return {name: hint for name, hint in found.items() if hint is not None}


def _hint(fn: Callable[..., Any], annotation: Any) -> Any:
    """Resolve one annotation, as get_type_hints does; None if that cannot be done."""
    one: Any = type("one", (), {"__annotations__": {"it": annotation}, "__module__": fn.__module__})
    names = getattr(fn, "__globals__", {})
    try:
        return typing.get_type_hints(one, globalns=names, include_extras=True)["it"]
    except Exception:
        return None
