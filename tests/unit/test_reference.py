"""The reference that the site makes from the docstrings is complete."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path

import outlast
import outlast.testing
from tools import reference

TEXT = reference.page()
_IMPORTED = re.compile(r"^\s*from (outlast[\w.]*) import ([^\n]+)$", re.MULTILINE)
HEADINGS = re.findall(r"^#{2,4} (.+)$", TEXT, re.MULTILINE)


def test_each_public_name_has_its_place() -> None:
    placed = [name for names in reference.GROUPS.values() for name in names]
    for_tests = [name for names in reference.TESTING.values() for name in names]
    assert sorted(placed) == sorted(set(outlast.__all__) - {"__version__"})
    assert sorted(for_tests) == sorted(outlast.testing.__all__)
    assert {f"`{name}`" for name in [*placed, *for_tests]} <= set(HEADINGS)
    for module, names in reference.OTHERS.values():
        assert set(getattr(module, "__all__", names)) == set(names), module.__name__
        assert {f"`{module.__name__}.{name}`" for name in names} <= set(HEADINGS)


def test_what_the_other_pages_import_has_its_place() -> None:
    """A name that a page of docs tells users to import is public, and public names are here."""
    modules = {module.__name__: names for module, names in reference.OTHERS.values()}
    modules |= {"outlast.testing": outlast.testing.__all__, "outlast": outlast.__all__}
    for page in (Path(__file__).parents[2] / "docs").glob("*.md"):
        for module, told in _IMPORTED.findall(page.read_text()):
            for name in re.findall(r"\w+", told.partition("#")[0]):
                known = f"{module}.{name}" in modules or name in modules.get(module, [])
                assert known, f"{page.name}: from {module} import {name}"


def test_each_public_method_and_property_has_its_place() -> None:
    wanted = set()
    public = [getattr(outlast, name) for name in outlast.__all__]
    for kind in filter(inspect.isclass, [*public, outlast.testing.AppUnderTest]):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (inspect.isfunction(member) or is_property(member)):
                wanted.add(f"`{kind.__name__}.{name.removesuffix('_sync')}`")
    assert {"`App.get`", "`Attempt.save`", "`Attempt.checkpoint`"} <= wanted <= set(HEADINGS)


def is_property(member: object) -> bool:
    return isinstance(member, property)


def test_each_link_leads_to_a_heading() -> None:
    anchors = {reference.anchor(heading) for heading in HEADINGS}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


class _Sample:
    """A class.

    Attributes:
        one, two: numbers,
            whole ones.

    A last word on ``one``.
    """

    def method(self, first: int, /, second: str = "a", *rest: str, third: bool = True) -> None:
        """Do something."""


def test_a_docstring_becomes_markdown() -> None:
    assert reference.markdown(_Sample.__doc__) == (
        "A class.\n\n**Attributes**\n\n- `one`, `two`: numbers,\n  whole ones.\n\n"
        "A last word on `one`."
    )


def test_a_signature_is_written_as_in_the_code() -> None:
    (line,) = reference.signatures(_Sample.method, "method")
    written = "method(first: int, /, second: str = 'a', *rest: str, third: bool = True) -> None"
    assert line == f"def {written}"


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    (line,) = reference.signatures(outlast.App.__init__, "App")
    assert line.splitlines()[:3] == ["App(", "    url: str | None = None,", "    *,"]
    assert len(typing.get_overloads(outlast.App.task)) == TEXT.count("def task(")
