"""Names in the docs exist in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import typer.main

import outlast
from outlast import events
from outlast.base.config import WorkerSettings
from outlast.cli.tree import build
from outlast.events import Event
from outlast.store.backend import Backend
from tests.cases import each_case
from tests.unit.tidy_kit import faults, nodes, parsed, read
from tools import agents, reference, site, wheel_readme

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
TOP = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", CONTRIBUTING]
MADE = {ROOT / path: text for path, text in site.make_pages(ROOT).items()}  # no files
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md")), *MADE]
LISTED_FOR_AGENTS = MADE[ROOT / agents.LIST]
LATER: set[str] = set()  # the docs mark each as planned
OF_OTHERS = {  # pip, outlast.probe, tests.sim, tests.chaos, tests.upgrade
    "--host", "--port", "--with", "--story", "--schedules", "--clock", "--seed", "--asynchronous",
    "--encrypted", "--break",
}  # fmt: skip
OF_POSTGRES = {"--clean", "--dbname", "--file", "--format", "--if-exists", "--schema"}
OF_POSTGRES |= {
    "--single-transaction",
    "--no-data-checksums",
    "--analyze-in-stages",
    "--maintenance-db",
}  # of its programs
OF_BENCH = {"--only", "--what", "--minutes", "--page", "--rounds", "--jobs", "--quick"}
OF_BENCH |= {"--rows", "--store", "--held", "--adapter"}

OF_PLATFORMS = {  # docker, kubectl, systemctl, useradd and pip, in docs/deploy.md
    "--build",
    "--build-arg",
    "--env-file",
    "--for",
    "--from-env-file",
    "--ignore-not-found",
    "--home-dir",
    "--init",
    "--no-healthcheck",
    "--now",
    "--restart",
    "--stop-timeout",
    "--system",
    "--upgrade",
    "--user-group",
}
OF_PEERS = {  # as in their own documentation
    "celery": {"--pool", "--autoscale"},
    "rq": {"--burst", "--max-jobs", "--num-workers", "--with-scheduler"},
    "dramatiq": {"--processes", "--threads", "--watch", "--worker-shutdown-timeout"},
    "procrastinate": {
        "--apply",
        "--fetch-job-polling-interval",
        "--listen-notify",
        "--shutdown-graceful-timeout",
    },
    "arq": {"--burst", "--watch", "--check"},
    "pgqueuer": {"--batch-size", "--max-concurrent-tasks", "--mode"},
}


def commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(build())
    return dict(root.commands)


def flags_of(command: Any) -> set[str]:
    subs = getattr(command, "commands", {})
    mine = {name for parameter in command.params for name in parameter.opts}
    return mine.union(*(flags_of(sub) for sub in subs.values()))


def text_of(page: Path) -> str:
    """Return the text of a page, also of one that the site makes."""
    return MADE[page] if page in MADE else page.read_text()


def code_of(page: Path) -> str:
    """Return the code in a page: fenced and inline."""
    text = text_of(page)
    fenced = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    return "\n".join([*fenced, *re.findall(r"`[^`\n]+`", text)])


def flags_of_others(page: Path) -> set[str]:
    """Return the flags of other programs that a page may name."""
    if page.parent.name == "coming-from":
        return OF_PEERS.get(page.stem, set())
    return {"deploy": OF_PLATFORMS, "backups": OF_POSTGRES}.get(page.stem, set())


def test_every_command_and_flag_in_the_docs_exists() -> None:
    known = commands()
    ours = {"--help", "--version"}.union(*(flags_of(command) for command in known.values()))
    wrong = []
    for page in PAGES:
        code = code_of(page)
        named = set(re.findall(r"(?:^|[$`]\s?)outlast ([a-z]+(?:-[a-z]+)*)", code, re.MULTILINE))
        wrong += [f"{page.name}: outlast {name}" for name in named - {*known} - LATER]
        spoken = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", code))
        unknown = spoken - ours - OF_OTHERS - OF_BENCH - flags_of_others(page)
        wrong += [f"{page.name}: {flag}" for flag in unknown]
    assert wrong == []


def test_every_public_name_in_the_docs_exists() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\boutlast\.([A-Z]\w+|current)\b", code_of(page))
    }
    assert len(named) > 20
    assert [each for each in named if not hasattr(outlast, each[1])] == []


SOURCES = sorted((ROOT / "src").rglob("*.py"))
OF_THE_REPOSITORY = re.compile(r"\bdocs/|\w\.md\b")


def messages_that_name_files(source: Path) -> list[str]:
    if not OF_THE_REPOSITORY.search(read(source)):  # most files: they need not be parsed
        return []
    every = nodes(parsed(source))
    docstrings = {each.value for each in every if isinstance(each, ast.Expr)}
    texts = [each for each in every if isinstance(each, ast.Constant) and each not in docstrings]
    return [
        each.value
        for each in texts
        if isinstance(each.value, str) and OF_THE_REPOSITORY.search(each.value)
    ]


def test_no_message_sends_a_user_to_a_file_of_the_repository() -> None:
    """Who installed the wheel has none of them: a message says itself what to do."""
    assert faults(SOURCES, messages_that_name_files) == {}


# ------------------------------------------------------------------------ the site

SHOWN = {ROOT / page for page in site.pages(ROOT)} | set(MADE)  # what `make docs` shows
DECISIONS = set((ROOT / "docs" / "decisions").glob("0*.md"))
INDEXES = {ROOT / "README.md", ROOT / "docs" / "README.md"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
SWALLOWED = re.compile(r"^(?![-*] |\d+\. |[#|>\s])\S.*\n(?:- |\d+\. |\|)", re.MULTILINE)


def prose_of(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_in(text: str) -> set[str]:
    """Return what a link into a page may name."""
    return {reference.anchor(one) for one in re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE)}


def is_dead(link: str, page: Path, text: str) -> bool:
    """Whether a link on a page of this text has no target, here or on the site."""
    if link.startswith("http"):
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if path and target not in SHOWN:
        return True
    return bool(anchor) and anchor not in anchors_in(text_of(target) if path else text)


def dead_links(page: Path, text: str) -> list[str]:
    return [link for link in LINK.findall(prose_of(text)) if is_dead(link, page, text)]


def test_each_page_looks_as_it_should_on_the_site() -> None:
    texts = {page: text_of(page) for page in SHOWN if page.suffix == ".md"}
    dead = [(page.name, link) for page, text in texts.items() for link in dead_links(page, text)]
    assert dead == []
    swallowed = {page: SWALLOWED.findall(prose_of(text)) for page, text in texts.items()}
    wrong = {page: lists for page, lists in swallowed.items() if lists}
    assert wrong == {}, "put an empty line between"


@each_case(
    ("text", "dead"),
    [
        ("[a](docs/concepts.md#suspects) [b](https://example.org) [c](#here)\n\n## Here\n", []),
        ("[a](docs/none.md)", ["docs/none.md"]),
        ("[a](docs/concepts.md#none) [b](#none)", ["docs/concepts.md#none", "#none"]),
        ("[a](src/outlast/client/app.py)", ["src/outlast/client/app.py"]),
        ("[a](/docs/concepts.md)", ["/docs/concepts.md"]),
    ],
)
def test_a_link_without_a_target_is_found(text: str, dead: list[str]) -> None:
    assert dead_links(ROOT / "README.md", text) == dead


@each_case(
    ("text", "is_swallowed"),
    [("So:\n- one\n", True), ("**So.**\n1. one\n", True), ("So:\n\n- one\n  more\n- two\n", False)],
)
def test_a_list_that_the_site_would_show_as_prose_is_found(text: str, is_swallowed: bool) -> None:
    assert bool(SWALLOWED.search(text)) is is_swallowed


@each_case(("base", "begin"), [(None, "(`"), ("https://example.org/x", "](https://example.org/x/")])
def test_the_description_of_the_package_has_no_link_into_the_tree(
    base: str | None, begin: str
) -> None:
    readme = (ROOT / "README.md").read_text()
    resolved = wheel_readme.resolve(readme, base)
    linked = re.sub(r"!\[[^]]*\]\([^)]*\)", "", readme)  # pictures may be left out
    inside = [link for link in LINK.findall(prose_of(linked)) if not link.startswith("http")]
    assert resolved.count(begin) >= len(inside) > 10
    assert "!(" not in resolved
    assert ("![" in resolved) is (base is not None)
    assert [link for link in LINK.findall(resolved) if not link.startswith("http")] == []


def linked_from(page: Path) -> set[Path]:
    """Return the pages that a page links to."""
    paths = {link.partition("#")[0] for link in LINK.findall(prose_of(text_of(page)))}
    return {(page.parent / path).resolve() for path in paths if path.endswith(".md")}


@each_case(
    ("index", "pages"),
    [
        ("docs/README.md", {page for page in SHOWN - DECISIONS - INDEXES if page.suffix == ".md"}),
        ("docs/decisions/README.md", DECISIONS),
    ],
)
def test_every_page_is_in_an_index(index: str, pages: set[Path]) -> None:
    assert len(pages) > 20
    assert pages - linked_from(ROOT / index) == set()


def test_each_page_has_a_line_in_the_list_for_agents() -> None:
    """Decisions have an index of their own; the front page and the index need no line."""
    pages = {page for page in SHOWN - DECISIONS - INDEXES if page.suffix == ".md"}
    wanted = pages - {ROOT / agents.PAGE}
    lines = re.findall(r"^- \[(.+)\]\((.+)/\): (.+)\.$", LISTED_FOR_AGENTS, re.MULTILINE)
    named = [ROOT / path for _, path, _ in lines]
    assert len(named) == len(set(named)) > 50
    assert set(named) == {
        page.parent if page.stem == "README" else page.with_suffix("") for page in wanted
    }
    assert wanted <= linked_from(ROOT / agents.PAGE)


def test_decisions_are_listed_by_number_and_have_dates() -> None:
    listed = re.findall(
        r"^- \[(\d{4}): .*\]\((\1-[^)]*)\)$",
        (ROOT / "docs" / "decisions" / "README.md").read_text(),
        re.MULTILINE,
    )
    assert [name for _, name in listed] == sorted(page.name for page in DECISIONS)
    for number, name in listed:
        head = (ROOT / "docs" / "decisions" / name).read_text()
        assert re.match(rf"# {number}: .*\n\nDate: \d{{4}}-\d\d-\d\d\. Status: ", head), name


def test_every_command_is_on_the_page_of_commands() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert [name for name in commands() if f"`{name}`" not in page] == []


def undescribed(name: str, command: Any) -> Iterator[str]:
    """Yield what `--help` of a command and of those below it does not explain."""
    if not command.help:
        yield name
    for parameter in command.params:
        if not parameter.help:
            yield f"{name} {parameter.opts[0]}"
    for below, sub in getattr(command, "commands", {}).items():
        yield from undescribed(f"{name} {below}", sub)


def test_help_describes_every_command_and_option() -> None:
    found = [each for name, command in commands().items() for each in undescribed(name, command)]
    assert found == []


def test_the_flags_of_the_worker_are_the_names_of_its_settings() -> None:
    flags = {flag.removeprefix("--").replace("-", "_") for flag in flags_of(commands()["worker"])}
    assert {*WorkerSettings.__struct_fields__} - flags == {"poll", "presence"}
    assert "no_presence" in flags


def test_the_catalogue_of_events_is_the_one_of_the_code() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.+) \| (.*) \|$",
        reference.page(),
        re.MULTILINE,
    )
    told = {
        name: Event(sentence, tuple(re.findall(r"`(\w+)`", fields)), level)
        for name, level, sentence, fields in rows
    }
    assert told == events.CATALOGUE
    assert len(rows) == len(told), "an event has two rows"


# ------------------------------------------------------------------------ the threat model

MODEL = (ROOT / "SECURITY.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LEAST = 40  # lines of the model: fewer would mean that the page is parsed wrongly


@cache
def names_in(path: str) -> set[str]:
    """Return the names of the tests in a file; none where there is no such file."""
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {each.name for each in tree.body if isinstance(each, functions)}
    return {name for name in names if name.startswith("test_")}


def missing(page: str) -> list[str]:
    """Return the tests that a page names and that are not there."""
    named = NAMED.findall(page)
    return [f"{path}::{name}" for path, name in named if name not in names_in(path)]


def lines_of(page: str) -> list[tuple[str, str]]:
    """Return the rows of all tables of threats: what must not be possible, and its tests."""
    tables = re.findall(r"^\| must not.*?\|\n\|---\|---\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    rows = [row.strip("|").split("|") for table in tables for row in table.splitlines()]
    return [(what.strip(), shown.strip()) for what, shown in rows]


def unproven(page: str) -> list[str]:
    """Return the rows with neither a test nor the note that they are not defended."""
    return [
        what
        for what, shown in lines_of(page)
        if not NAMED.search(shown) and not shown.startswith("not defended")
    ]


def test_each_test_that_the_threat_model_names_is_there() -> None:
    assert missing(MODEL) == []


def test_each_line_of_the_threat_model_names_a_test_or_is_marked_not_defended() -> None:
    assert unproven(MODEL) == []
    assert len(lines_of(MODEL)) >= LEAST


def test_all_test_names_on_the_page_have_the_checked_form() -> None:
    """A path in another form would not be checked."""
    assert len(re.findall(r"tests/\S*test_", MODEL)) == len(NAMED.findall(MODEL))


@each_case(
    "shown",
    ["`tests/unit/test_docs.py::test_no_such`", "`tests/unit/test_none.py::test_no_such`"],
)
def test_a_test_that_is_not_there_is_found(shown: str) -> None:
    assert missing(f"| must not | shown by |\n|---|---|\n| read | {shown} |\n") == [
        shown.strip("`")
    ]


def test_a_line_without_a_test_is_found() -> None:
    table = "| must not | shown by |\n|---|---|\n| read | not defended: so |\n| write | surely |\n"
    assert unproven(table) == ["write"]


# -------------------------------------------------------------------- pairs of mechanisms

CROSSED = (ROOT / "tests" / "pairs.md").read_text()
PAIRS = CROSSED.partition("\n## Pairs of mechanisms\n")[2].partition("\n## ")[0]


def pairs_in(page: str) -> tuple[list[frozenset[str]], list[frozenset[str]], list[frozenset[str]]]:
    """Return the pairs that are covered, those that are open, and those that cannot meet."""
    rows = re.findall(r"^\| (.+?) \u00d7 (.+?) \| (.+) \|$", page, re.MULTILINE)
    covered = [frozenset((one, other)) for one, other, shown in rows if NAMED.search(shown)]
    others = [frozenset((one, other)) for one, other, shown in rows if not NAMED.search(shown)]
    apart = [
        frozenset((one, other))
        for some, more in re.findall(r"^- \*\*(.+?)\*\* \u00d7 ([^:]+):", page, re.MULTILINE)
        for one in re.split(r",\s+", some)
        for other in re.split(r",\s+", more)
    ]
    return covered, others, apart


LISTED = CROSSED.partition("\n## The mechanisms\n")[2].partition("\n## ")[0]
SQL_OF_STORES = [
    path
    for path in (ROOT / "src" / "outlast" / "store").rglob("*.sql")
    if path.name.startswith("outlast_")
]
SCHEMA = "".join(
    path.read_text() for path in (ROOT / "src" / "outlast" / "store" / "postgres").rglob("*.sql")
)


def mechanisms_in(page: str) -> list[list[str]]:
    """Return the rows of the tables of mechanisms, without their heads."""
    rows = re.findall(r"^\| (.+) \|$", page, re.MULTILINE)
    cells = [row.split(" | ") for row in rows]
    return [row for row in cells if row[0] != "mechanism"]


def test_each_mechanism_is_listed_with_a_state_and_a_place_that_are_there() -> None:
    rows = mechanisms_in(LISTED)
    followed = {row[0] for row in rows if len(row) == 4}
    covered, others, apart = pairs_in(PAIRS)
    assert followed == frozenset[str]().union(*covered, *others, *apart)
    names = followed | {row[1] for row in rows if len(row) == 5 and row[1][0] != "("}
    said = re.findall(r"\b(\d+)\b", LISTED.partition("each row is one")[0])
    assert [int(number) for number in said] == [
        len(names),
        len(followed),
        len(names - followed),
        len(rows),
    ]
    assert len({row[0] for row in rows}) == len(rows)
    assert astray(LISTED) == []
    functions = {path.name for path in SQL_OF_STORES}
    assert set(re.findall(r"`(\w+\.sql)`", LISTED)) <= functions
    for table, column in re.findall(r"`(outlast_\w+)\.(?!sql`)(\w+)`", LISTED):
        (body,) = re.findall(
            rf"^CREATE (?:UNLOGGED )?TABLE {table} \((.*?);$", SCHEMA, re.MULTILINE | re.DOTALL
        )
        assert (table, column) == (table, *re.findall(rf"\b({column})\b", body)[:1])


def test_each_pair_of_mechanisms_is_told_once_and_counted() -> None:
    assert missing(PAIRS) == []
    covered, others, apart = pairs_in(PAIRS)
    told = [*covered, *others, *apart]
    mechanisms = frozenset[str]().union(*told)
    assert {frozenset(pair) for pair in combinations(mechanisms, 2)} == {*told}
    assert len({*told}) == len(told)
    said = re.findall(r"\d+", PAIRS.strip().partition(".")[0])
    counts = [len(told), len(mechanisms), len(covered), len(apart), len(others)]
    assert [int(number) for number in said] == counts


ALL_PAIRS = "".join(re.findall(r"\n## Pairs .*?(?=\n## |\Z)", CROSSED, re.DOTALL))


def test_each_pair_of_all_mechanisms_is_told_once() -> None:
    assert missing(ALL_PAIRS) == []
    told = [pair for pairs in pairs_in(ALL_PAIRS) for pair in pairs]
    assert len({*told}) == len(told)
    names = [row[0] for row in mechanisms_in(LISTED)]
    assert {frozenset(pair) for pair in combinations(names, 2)} == {*told}


# ------------------------------------------------------------------------ for contributors

FOR_CONTRIBUTORS = [
    CONTRIBUTING,
    ROOT / "docs" / "add-a-store.md",
    ROOT / "docs" / "internals.md",
]
PLACE = re.compile(r"`((?:src|tests|harness|docs|tools|bench|examples|requirements)/[^`\s]*)`")
LEAST_PLACES = 20  # of each page: fewer would mean that they are parsed wrongly


def astray(page: str) -> list[str]:
    """Return the paths that a page names and that are not in the tree."""
    return [path for path in PLACE.findall(page) if not list(ROOT.glob(path.rstrip("/")))]


def test_each_path_for_contributors_is_in_the_tree() -> None:
    for page in FOR_CONTRIBUTORS:
        assert (page.name, astray(page.read_text())) == (page.name, [])
        assert len(PLACE.findall(page.read_text())) >= LEAST_PLACES


@each_case("path", ["src/outlast/nowhere.py", "tests/none/", "src/*/none.py"])
def test_a_path_that_is_not_in_the_tree_is_found(path: str) -> None:
    assert astray(f"See `src/outlast/client/app.py`, `tests/unit/` and `{path}`.") == [path]


def test_each_make_target_for_contributors_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)", code_of(CONTRIBUTING)))
    assert {"venv", "unit", "check"} <= named <= targets


def test_the_page_on_stores_shows_each_field_of_an_entry() -> None:
    page = (ROOT / "docs" / "add-a-store.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(Backend.__struct_fields__)
