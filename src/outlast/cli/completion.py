"""``outlast completion``: let a shell complete commands and options at the Tab key.

At each completion the shell runs ``outlast`` with ``COMPLETING`` set, which prints the words that
could follow. This imports no application and opens no store.
"""

from __future__ import annotations

import importlib
import os
from enum import StrEnum
from typing import Annotated, Any

import typer

from outlast.cli.usage import COMPLETING

PROGRAM = "outlast"


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.", show_default=False)
    ],
) -> None:
    """Print the script with which a shell completes commands and options.

    It needs no application and no store.

    Examples:
        outlast completion bash > ~/.local/share/bash-completion/completions/outlast
        outlast completion zsh > ~/.zfunc/_outlast
        outlast completion fish > ~/.config/fish/completions/outlast.fish
    """
    print(
        _typer().get_completion_script(
            prog_name=PROGRAM, complete_var=COMPLETING, shell=shell.value
        )
    )


def answer(tree: Any) -> int:
    """Print the words that could follow; return the exit code. ``tree``: all commands."""
    _typer().completion_init()
    return int(_typer().shell_complete(tree, {}, PROGRAM, COMPLETING, os.environ[COMPLETING]))


def _typer() -> Any:
    """Return typer's own module for completion, which exports nothing by name."""
    return importlib.import_module("typer.completion")
