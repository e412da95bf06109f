"""What the tests in a browser share."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from harness.browser import Browser

LOOKS: list[dict[str, Any]] = [
    {"width": width, "dark": dark} for width in (1280, 390) for dark in (False, True)
]
AXE = """
const [done] = arguments;
axe.run(document, {resultTypes: ["violations"]}).then((found) => done(found.violations.map(
  (one) => `${one.impact}: ${one.id}: ${one.nodes.map((node) => node.target).join(" | ")}`)));
"""


@cache
def axe() -> str:
    """Return the script of axe-core."""
    return files("axe_core_python").joinpath("axe.min.js").read_text()


def serious(browser: Browser) -> list[str]:
    """Return what axe finds on the page that people cannot live with."""
    browser.run(axe())
    found: list[str] = browser.driver.execute_async_script(AXE)
    return [one for one in found if one.startswith(("serious", "critical"))]


def is_too_wide(browser: Browser) -> bool:
    """Whether the page has to be scrolled sideways."""
    return bool(browser.run("return document.documentElement.scrollWidth > innerWidth"))


def shows(text: str) -> Any:
    """Return a condition: the text is on the page."""
    return lambda browser: text in browser.text()


def hidden_columns(browser: Browser) -> list[str]:
    """Return the tables of which a part can only be seen by scrolling."""
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('.table')]"
        ".filter(one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel)"
    )
    return found


def broken_headers(browser: Browser) -> list[str]:
    """Return the headers of columns that are broken within a word."""
    found: list[str] = browser.run(
        "const lines = one => { const all = document.createRange(); all.selectNodeContents(one);"
        " return new Set([...all.getClientRects()].map(each => each.top)).size };"
        "return [...document.querySelectorAll('thead th')].map(one => [one, one.innerText.trim()])"
        ".filter(([one, text]) => lines(one) > text.split(/[\\\\s/]+/).length).map(both => both[1])"
    )
    return found
