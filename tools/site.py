"""Builds the pages as a site with search, into build/site: `make docs`.

The site is laid out as the repository is, so that a relative link leads to the same page in both.
Its menu is the index, docs/README.md. The reference is made from the docstrings of the code, and
the page for coding agents from the other pages. A link that leads nowhere, also within a page, and
a page that is not in the menu are errors.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools import agents, reference

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
INDEX = Path("docs/README.md")
PARTS = (
    "*.md",
    "docs/**/*.md",
    "docs/**/*.png",
    "docs/**/*.svg",
    "examples/*/README.md",
    "bench/results/*.md",
    "bench/results/*.svg",
)
OUTSIDE_THE_MENU = "docs/decisions/*"  # they have an index of their own
_HEADING = re.compile(r"^## ([^:\n]+)", re.MULTILINE)
_LINK = re.compile(r"\[([^]\[]+)\]\(([^)#]+\.md)(?:#[^)]*)?\)")


def build(root: Path, site: Path, made: Mapping[Path, str]) -> None:
    """Build the site of the pages below ``root`` and of those in ``made``, by their paths.

    Raises mkdocs' Abort after a warning.
    """
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    with TemporaryDirectory() as folder:
        staged = Path(folder)
        for page in pages(root):
            (staged / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / page, staged / page)
        for page, text in made.items():
            (staged / page).write_text(text)
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            docs_dir=folder,
            site_dir=str(site),
            nav=menu(root),
            not_in_nav=OUTSIDE_THE_MENU,
            strict=True,
        )
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build_site(config)
        finally:
            config.plugins.on_shutdown()


def pages(root: Path) -> Iterator[Path]:
    """Yield the paths of all that the site is made of, from ``root``."""
    for part in PARTS:
        yield from (path.relative_to(root) for path in root.glob(part))


def menu(root: Path) -> list[dict[str, Any]]:
    """Return the menu: the headings of the index, and below each the pages that it names first."""
    whole: list[dict[str, Any]] = [{"Outlast": "README.md"}, {"Documentation": str(INDEX)}]
    _, *parts = _HEADING.split((root / INDEX).read_text())
    seen: set[str] = set()
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        entries = []
        for title, target in _LINK.findall(text):
            page = str((root / INDEX.parent / target).resolve().relative_to(root.resolve()))
            if page not in seen:
                seen.add(page)
                entries.append({title[0].upper() + title[1:]: page})
        whole.append({heading: entries})
    return whole


def make_pages(root: Path) -> dict[Path, str]:
    """Return what is no file of the repository, by its place on the site."""
    pages, whole = {reference.PAGE: reference.page()}, menu(root)
    return pages | {
        agents.PAGE: agents.page(root, whole, pages),
        agents.LIST: agents.list_of_pages(root, whole, pages),
    }


def main() -> int:
    """Build the site of this repository."""
    logging.basicConfig(format="%(message)s")
    build(ROOT, SITE, make_pages(ROOT))
    print(f"{SITE.relative_to(ROOT)}/index.html")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
