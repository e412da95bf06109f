"""Keep the attempts of ``outlast replay`` in the sandbox: ``app`` is the application that the
replay names, as its runner imports it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from outlast.client.app import App
from outlast.runner.application import load_app
from outlast.testing.crashes.network import Network
from outlast.testing.crashes.recorder import Recorder
from outlast.testing.crashes.sandbox import Sandbox
from outlast.testing.crashes.servers import Servers

VARIABLE = "OUTLAST_REPLAY"
SPEC = f"{__name__}:app"


class Keep(NamedTuple):
    """Where attempts are kept, with what they find there, and what they may do outside."""

    app: str
    folder: str
    copy: list[str]
    allow_network: list[str]
    allow_command: list[str]


class _NoPoints(Recorder):
    def reach(self, *_: Any, **__: Any) -> None:
        """Pass a point: there is no crash."""


def keep(app: App, given: Keep) -> App:
    """Let the attempts of an application run in the sandbox from now on; return it."""
    servers = Servers("", copies=False)
    sandbox = Sandbox(
        Path(given.folder), app, given.allow_command, Network(given.allow_network), servers
    )
    sandbox.fill(given.copy)

    def stay(attempt: Any) -> Iterator[None]:
        attempt.recorder = _NoPoints()
        with sandbox.keeping_temporaries(), sandbox.enter(attempt.recorder):
            yield

    app.around(stay)
    app.around_fns.insert(0, app.around_fns.pop())  # around the user's own
    return app


def __getattr__(name: str) -> App:
    if name != "app":
        raise AttributeError(name)
    given = msgspec.json.decode(os.environ[VARIABLE], type=Keep)
    return keep(load_app(given.app), given)
