"""``outlast checkpoint`` and ``outlast report``: let a command report from within its job."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from outlast.cli.options import option
from outlast.errors import UsageError
from outlast.runner.shell.control_socket import (
    SOCKET_VARIABLE,
    TOKEN_VARIABLE,
    CheckpointRequest,
    ReportRequest,
    ask,
    check_checkpoint,
)


def checkpoint(
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Any text.")],
) -> None:
    """Save a text from which the next attempt of this command can continue.

    For use in a command that a worker runs (outlast run). Once this returns, the text survives the
    death of the command, its worker and its host: the next attempt finds it in OUTLAST_CHECKPOINT.
    Exit code 1 means that another attempt has taken over: the command should exit.

    Examples:
        outlast checkpoint "$page"
        for page in $(seq "${OUTLAST_CHECKPOINT:-1}" 100); do
            render "$page" && outlast checkpoint "$((page + 1))" || exit
        done
    """
    check_checkpoint(_text(value))
    _ask(CheckpointRequest(_token(), value))


def report(
    fraction: Annotated[float, typer.Argument(metavar="FRACTION", help="From 0 to 1.")],
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="A text for people.")
    ] = None,
    stage: Annotated[str | None, option("--stage", "NAME", "What it is doing now.")] = None,
) -> None:
    """Report this command's progress, for people to see.

    For use in a command that a worker runs (outlast run). Only the last report is kept.

    Example:
        outlast report 0.4 "page 40 of 100" --stage render
    """
    _ask(ReportRequest(_token(), fraction, message and _text(message), stage and _text(stage)))


def _ask(request: CheckpointRequest | ReportRequest) -> None:
    ask(os.environ[SOCKET_VARIABLE], request)


def _token() -> int:
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token.isdecimal() or not os.environ.get(SOCKET_VARIABLE):
        raise UsageError("this works only inside a command that `outlast run` has enqueued")
    return int(token)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{value!a} is not UTF-8") from None
    return value
