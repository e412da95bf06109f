"""Draws the picture of `outlast demo` that is in the docs, from a real run: `make demo-picture`."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "demo.svg"
COMMAND = "outlast demo"
MARGIN = 2  # characters beside the longest line
# Rich's own format, without the fonts that it fetches from another server.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
# The last lines name the place of the code and what to type next: those of this machine.
OF_THIS_MACHINE = ("code", "look")


def run() -> str:
    """Run the demo; return what it writes to a terminal. Raises CalledProcessError."""
    terminal = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", *COMMAND.split()]
    return subprocess.run(
        command, env=terminal, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def draw(written: str) -> str:
    """Return the SVG of a terminal in which the demo was run."""
    lines = [Text.from_ansi(line) for line in written.splitlines()]
    kept = [line for line in lines if not line.plain.startswith(OF_THIS_MACHINE)]
    shown = [Text(f"$ {COMMAND}"), *kept, Text()]
    for line in shown:
        line.rstrip()
    width = max(len(line.plain) for line in shown) + MARGIN
    screen = Console(record=True, width=width, file=io.StringIO(), color_system="truecolor")
    for line in shown:
        screen.print(line, soft_wrap=True, highlight=False)
    drawn = screen.export_svg(title=COMMAND, code_format=FORMAT, unique_id="demo")
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines())


if __name__ == "__main__":
    PICTURE.write_text(draw(run()))
