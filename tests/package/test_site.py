"""`make docs`: the site holds all pages, and is not built with a link that leads nowhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mkdocs.exceptions import Abort

from tools import agents, reference, site

pytestmark = pytest.mark.slow

SMALL = {
    "README.md": "# Front\n\n[docs](docs/README.md)\n",
    "docs/README.md": "# Index\n\n## Tutorial: learn it\n\n- [First](first.md#steps)\n",
    "docs/first.md": "# First\n\n## Steps\n\n[up](../README.md)\n",
}
FAULTS = {
    "a link to no page": ("docs/first.md", "# First\n\n## Steps\n\n[gone](gone.md)\n"),
    "a link to no heading": ("README.md", "# Front\n\n[docs](docs/first.md#stairs)\n"),
    "a page that is not in the menu": ("docs/orphan.md", "# Orphan\n"),
}


@pytest.fixture(autouse=True)
def _theme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the theme sets where it is imported first, so that it is taken back."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "true")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The pages of a small site."""
    for name, text in SMALL.items():
        path = tmp_path / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "pages"


def test_the_site_has_each_page_can_be_searched_and_asks_no_other_server(tmp_path: Path) -> None:
    site.build(site.ROOT, tmp_path, site.make_pages(site.ROOT))
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.html")}
    for page in [*site.pages(site.ROOT), reference.PAGE, agents.PAGE]:
        if page.suffix == ".md":
            place = page.parent if page.stem == "README" else page.with_suffix("")
            assert place / "index.html" in made, page
    assert "docs/getting-started/" in (tmp_path / agents.LIST).read_text()
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())
    assert any(one["location"].startswith("docs/guarantees/") for one in index["docs"])
    front = (tmp_path / "index.html").read_text()
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?https?:[^>]*>", front) == []


def test_a_small_site_without_a_fault_is_built(small: Path, tmp_path: Path) -> None:
    site.build(small, tmp_path / "site", {})
    assert (tmp_path / "site" / "docs" / "first" / "index.html").is_file()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_site_with_a_fault_is_not_built(fault: str, small: Path, tmp_path: Path) -> None:
    name, text = FAULTS[fault]
    (small / name).write_text(text)
    with pytest.raises(Abort, match="strict mode"):
        site.build(small, tmp_path / "site", {})
