"""Makes what coding agents read first, from the pages: a page of the site, and its llms.txt."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path("docs/for-agents.md")  # on the site, as the next one: no files of the repository
LIST = Path("llms.txt")

INTRO = """\
# Outlast for coding agents

What to know before you write a program with Outlast, and where the rest is. `make docs` makes this
page from the others; [llms.txt](../llms.txt) lists them for programs.

## Rules

- **A job may run more than once.** Make its effects repeatable, or put its own rows and its end
  into one commit: [your own transaction](transactions.md). Hand `attempt.token` to other systems.
- **Save a checkpoint after each part that must not be done again**, and begin at
  `attempt.checkpoint`. It is JSON; `save` returns once it is durable.
- **Enqueue in the transaction that writes the rows of the job**: `using(connection=…)`. A job that
  is enqueued after the commit is lost by a crash between the two.
- **In plain code every coroutine has a twin `NAME_sync`**, which raises `SyncInLoop` where an event
  loop runs. Calling a task calls its function; `enqueue` makes a job.
- **Annotate arguments and results**: what is stored is JSON, read back by the annotation.
- **Every exception is retried** (`retries=3`) unless `retry_on` or `dead_on` says otherwise.
  `Retry`, `Snooze`, `Cancel`, `Dead` and `Stopped` are not an `Exception`: let them pass.
- **No limit of time is set by default.** Give each task a `timeout`.
- **There is no mode in which `enqueue` runs the function.** Tests run what was stored.
- **Ask the program, do not guess**: `outlast why ID`, `outlast doctor jobs:app`, and for a task
  `outlast run-task` (one call, here) and `outlast crash-test` (a kill at each of its effects).
"""


Menu = Sequence[Mapping[str, Any]]  # as tools/site.py makes it


def page(root: Path, menu: Menu, made: Mapping[Path, str]) -> str:
    """Return the page; ``made``: pages of the site that are no files."""
    readme, elsewhere = root / "README.md", root / "docs" / "coming-from" / "README.md"
    program = "\n\n".join(_blocks(_section(readme.read_text(), "Use it"))[1:])
    promises = _moved(_section(readme.read_text(), "What it is"), Path("README.md"), PAGE)
    tests = _moved(_section(elsewhere.read_text(), "In tests"), elsewhere.relative_to(root), PAGE)
    parts = {
        "A whole program": program,
        "In tests": tests,
        "What it promises": promises,
        "All pages": "\n".join(_lines(root, menu, made, PAGE.parent)),
    }
    return INTRO + "".join(f"\n## {name}\n\n{text.strip()}\n" for name, text in parts.items())


def list_of_pages(root: Path, menu: Menu, made: Mapping[Path, str]) -> str:
    """Return llms.txt: each page of the menu, with a line of what it is about."""
    (about,) = re.findall(
        r"^(Outlast is .*?)\n\n", (root / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    lines = _lines(root, menu, made, None)
    about = " ".join(re.findall(r"[A-Z][^.:]*\.", " ".join(about.split())))
    return f"# Outlast\n\n> {about}\n\n" + "\n".join(lines) + "\n"


def describe(text: str) -> tuple[str, str]:
    """Return the title of a page, and the first sentence of its first paragraph."""
    (title,) = re.findall(r"^# (.+)$", text, re.MULTILINE)[:1]
    prose = re.sub(r"^ *```.*?^ *```|^<!--.*?-->$", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = [" ".join(each.split()) for each in prose.split("\n\n")]
    first = next(each for each in paragraphs if re.match(r"[A-Za-z*`\[]", each))
    sentence = re.split(r"(?<=[.!?])(?: |$)", _plain(first))[0]
    return title, re.sub(r":$", ".", sentence)


def _plain(text: str) -> str:
    """Return a text without the marks of Markdown for links and emphasis."""
    return re.sub(r"\*+", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))


def _lines(root: Path, menu: Menu, made: Mapping[Path, str], folder: Path | None) -> Iterator[str]:
    """Yield a heading for each part of the menu, and a line for each page. Links are relative to
    ``folder`` and lead to pages; without it they are those of the site, from its top."""
    for heading, entries in [each for part in menu for each in part.items()]:
        named = (
            [] if isinstance(entries, str) else [each for one in entries for each in one.values()]
        )
        paths = [path for path in map(Path, named) if path != PAGE]
        if paths:
            yield f"{'##' if folder is None else '###'} {heading}\n"
        for path in paths:
            title, about = describe(made[path] if path in made else (root / path).read_text())
            yield f"- [{title}]({_link(path, folder)}): {about}"
        if paths:
            yield ""


def _link(path: Path, folder: Path | None) -> str:
    if folder is None:
        return f"{path.parent if path.stem == 'README' else path.with_suffix('')}/"
    return os.path.relpath(path, folder)


def _section(text: str, heading: str) -> str:
    """Return what stands below a heading of a page, until the next one."""
    (found,) = re.findall(rf"^##+ {heading}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    return str(found)


def _blocks(text: str) -> list[str]:
    return re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)


def _moved(text: str, source: Path, target: Path) -> str:
    """Return a text of the page ``source`` with the links that it has on the page ``target``."""

    def move(link: re.Match[str]) -> str:
        path, _, anchor = link[1].partition("#")
        there = os.path.normpath(source.parent / path) if path else str(source)
        return f"]({os.path.relpath(there, target.parent)}{'#' if anchor else ''}{anchor})"

    return re.sub(r"\]\((?!https?:)([^)\s]+)\)", move, text)
