"""Read ``OUTLAST_PAGE``: what the page and the admin hide, and whether they are read-only."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from outlast.errors import ConfigError, text_of

SETTING = "OUTLAST_PAGE"
SETTINGS = frozenset({"name", "colour", "hide", "hide_keys", "read_only"})  # as of ``dashboard``


def chosen_settings() -> dict[str, Any]:
    """Return the given settings; ImproperlyConfigured for one that does not exist."""
    chosen: dict[str, Any] = getattr(settings, SETTING, {})
    if unknown := sorted(set(chosen) - SETTINGS):
        names = ", ".join(sorted(SETTINGS))
        raise ImproperlyConfigured(f"{SETTING} has {', '.join(unknown)}: it takes {names}")
    return chosen


def is_read_only() -> bool:
    """Whether people may change nothing."""
    return bool(chosen_settings().get("read_only"))


def hides() -> bool:
    """Whether anything is to be hidden."""
    return bool(chosen_settings().get("hide") or chosen_settings().get("hide_keys"))


def covered(columns: dict[str, Any], kind: type) -> dict[str, Any]:
    """Return columns of a row of this kind with secrets hidden."""
    if not hides():
        return columns
    chosen = chosen_settings()
    try:
        from outlast.insight.hiding import Covering, Hiding
    except ModuleNotFoundError as missing:
        said = f"{SETTING} hides something: pip install 'outlast[web]'"
        raise ImproperlyConfigured(said) from missing
    try:
        hiding = Hiding(chosen.get("hide"), chosen.get("hide_keys", ()))
    except ConfigError as error:
        raise ImproperlyConfigured(f"{SETTING}: {text_of(error)}") from error
    return Covering(hiding, payload=True).cover(columns, kind)
