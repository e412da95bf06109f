"""Lay out help, and report all wrong options of a command line at once."""

from __future__ import annotations

import inspect
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from outlast.cli.errors import WRONG_USAGE

COMPLETING = "_OUTLAST_COMPLETE"  # set by a shell that asks for completions
_Misuse: Any = typer.BadParameter.__base__  # the base of typer's errors about usage


class CheckedCommand(TyperCommand):
    """A command that reports all wrong options of a call at once: typer stops at the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read a command line."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except _Misuse as first:
            faults = self._find_faults(ctx, given)
            if len(faults) < 2:  # noqa: PLR2004
                raise
            raise _Misuse("; ".join(faults), ctx) from first

    def _find_faults(self, ctx: Any, given: list[str]) -> list[str]:
        """Return all faults of a command line; not those of arguments if there are unknown options,
        whose values look like arguments."""
        from outlast.payload.option_words import hint, near

        known = [
            name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)
        ]
        flags = (each.partition("=")[0] for each in takewhile(lambda each: each != "--", given))
        unknown = dict.fromkeys(each for each in flags if each[:2] == "--" and each not in known)
        meant = {name: near(name, known) for name in unknown}
        faults = [f"No such option: {name}{hint(ours)}" for name, ours in meant.items()]
        ctx.ignore_unknown_options = True
        try:
            values, rest, _ = self.make_parser(ctx).parse_args(args=[*given])
        except _Misuse as error:
            return [*faults, message_of(error)]
        for each in self.get_params(ctx):
            if not each.is_eager and not (unknown and each.param_type_name == "argument"):
                try:
                    _, rest = each.handle_parse_result(ctx, values, rest)
                except _Misuse as error:
                    faults.append(message_of(error))
        return faults


class CommandGroup(TyperGroup):
    """A group that lists its commands with the whole first line of their help, which typer cuts."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; of an unknown one, say which of ours is meant, or all."""
        name = args[0]
        if name[:1] == "-" or name in self.commands or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from outlast.payload.option_words import OF_COMMANDS, hint, near

        ours = OF_COMMANDS.get(name)
        meant = ours if ours in self.commands else near(name, self.commands)
        rest = "" if meant else f"; choose from: {', '.join(self.commands)}"
        raise _Misuse(f"No such command {name!r}{hint(meant)}{rest}", ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, (each.help or "").partition("\n\n")[0])
                    for name, each in self.commands.items()
                ]
            )


def message_of(error: Any) -> str:
    """Return typer's message; of a missing argument, with its help."""
    text = str(error.format_message())
    about = getattr(getattr(error, "param", None), "help", None)
    if not about or not text.startswith("Missing argument"):
        return text
    return f"{text.partition('.')[0]}: {about[0].lower()}{about[1:].rstrip('.')}"


def show_help(context: typer.Context) -> None:
    """Show the help of a group if no command of it is named; the exit code is then 2."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        print(text, end="\n" if text else "")  # "": typer has already printed it
        raise typer.Exit(WRONG_USAGE)


def lay_out(docstring: str) -> str:
    """Return a docstring as typer's help: each paragraph on one line, examples unchanged."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    return f"\b\n{text}" if "\n    " in f"\n{text}" else " ".join(text.split())
