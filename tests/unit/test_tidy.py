"""The house rules that no linter knows: sleeps, notes without an issue, words."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from outlast.model.crash import CrashKind
from outlast.model.lease import DeathCause
from tests.cases import each_case
from tests.unit.tidy_kit import CODE, ROOT, faults, named, nodes, parsed, read

pytestmark = pytest.mark.xdist_group("tidy")  # all of them parse the same files
TEXT = [*CODE, *sorted((ROOT / "src").rglob("*.sql"))]
NO_SLEEP = [
    path
    for folder in ("unit", "conformance", "postgres", "sqlite")
    for path in CODE
    if path.is_relative_to(ROOT / "tests" / folder)
]
# A note for later names its issue, as in TO-DO(#12), written in one word.
BARE_NOTE = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|X" + r"XX)\b(?!\(#\d+\))")
STORES = [path for path in CODE if path.is_relative_to(ROOT / "src" / "outlast" / "store")]
COUNTED = re.compile(r"\b(row|r|each|found|pair)\[([2-9]|\d\d)\]")


def sleeps(path: Path) -> list[int]:
    if "sleep" not in read(path):  # most files: they need not be parsed
        return []
    calls = [node for node in nodes(parsed(path)) if isinstance(node, ast.Call)]
    return [node.lineno for node in calls if ast.unparse(node.func) == "time.sleep"]


def test_unit_and_conformance_tests_do_not_sleep() -> None:
    assert faults(NO_SLEEP, sleeps) == {}


def bare_notes(path: Path) -> list[int]:
    lines = read(path).splitlines()
    return [n for n, line in enumerate(lines, 1) if BARE_NOTE.search(line)]


def test_a_note_for_later_names_its_issue() -> None:
    assert faults(TEXT, bare_notes) == {}


def counted_columns(path: Path) -> list[int]:
    lines = read(path).splitlines()
    return [n for n, line in enumerate(lines, 1) if COUNTED.search(line)]


def test_no_column_of_a_row_is_found_by_counting_to_it() -> None:
    assert faults(STORES, counted_columns) == {}


def bare_errors(tree: ast.Module) -> list[int]:
    """Return the lines where an error is put into a text by itself: many say nothing."""
    caught = {
        node.name for node in nodes(tree) if isinstance(node, ast.ExceptHandler) and node.name
    }
    caught.add("error")
    asked = {  # 'words' in str(error), str(error).startswith(...): nothing is shown
        id(child)
        for node in nodes(tree)
        if isinstance(node, ast.Compare | ast.Attribute)
        for child in ast.iter_child_nodes(node)
    }
    shown = [node for node in nodes(tree) if isinstance(node, ast.expr) and _shows(node, caught)]
    return [node.lineno for node in shown if id(node) not in asked]


def _shows(node: ast.expr, caught: set[str]) -> bool:
    if isinstance(node, ast.FormattedValue) and node.conversion in {-1, ord("s")}:
        shown: ast.expr = node.value
    elif isinstance(node, ast.Call) and is_name(node.func, {"str"}) and node.args:
        shown = node.args[0]
    else:
        return False
    return is_name(shown, caught)


def is_name(node: ast.expr, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def test_an_error_is_shown_by_text_of_or_describe() -> None:
    shown = set((ROOT / "src").rglob("*.py")) - {ROOT / "src" / "outlast" / "errors.py"}
    assert faults(sorted(shown), lambda path: bare_errors(parsed(path))) == {}


NUMBERS = re.compile(r"(?:^|[._])id$|\.holder$|^min\(")


def unquoted_names(tree: ast.Module) -> list[int]:
    """Return the lines of commands to copy with a text that is no one word of a shell."""
    found = []
    for node in nodes(tree):
        before = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                command = before.rpartition("`")[2] if before.count("`") % 2 else ""
                is_copied = command.startswith(("outlast ", "--"))
                found += [part.lineno] if is_copied and not _is_one_word(part) else []
                before += "…"
    return found


COPIED = re.compile(r"\boutlast [a-z][^<\n]*?\{\{ (.*?) \}\}")
QUOTED = re.compile(r"\b(?:job_)?id$|\| shell_word$")
SHIPPED = [path for path in CODE if path.is_relative_to(ROOT / "src")]


def _is_one_word(part: ast.FormattedValue) -> bool:
    names = {"shell_word", "command_to_resume"}
    if isinstance(part.value, ast.Call) and is_name(part.value.func, names):
        return True
    return part.format_spec is not None or NUMBERS.search(ast.unparse(part.value)) is not None


def test_what_stands_in_a_command_to_copy_is_quoted_for_a_shell() -> None:
    assert faults(SHIPPED, lambda path: unquoted_names(parsed(path))) == {}
    unquoted = {
        named(path): found
        for path in sorted((ROOT / "src").rglob("*.html"))
        if (found := [one for one in COPIED.findall(read(path)) if not QUOTED.search(one)])
    }
    assert unquoted == {}
    for odd in ('f"`outlast event {name} JSON`"', 'f"with `--queues {quote(name)}`"'):
        assert unquoted_names(ast.parse(odd)), odd


def modules_named(tree: ast.Module) -> set[str]:
    """Return what a file imports, and each text in it that could be the name of a module."""
    return {
        *(name.name for node in nodes(tree) if isinstance(node, ast.Import) for name in node.names),
        *(node.module or "" for node in nodes(tree) if isinstance(node, ast.ImportFrom)),
        *(
            node.value.partition(":")[0]
            for node in nodes(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
    }


def of_tests(names: set[str]) -> set[str]:
    return {name for name in names if re.fullmatch(r"tests(\.\w+)*", name)}


NOT_TESTS = [path for path in CODE if not path.is_relative_to(ROOT / "tests")]


def test_only_tests_import_from_tests() -> None:
    assert faults(NOT_TESTS, lambda path: of_tests(modules_named(parsed(path)))) == {}


def test_each_way_to_import_from_tests_is_noticed() -> None:
    for line in (
        "import tests.crash.kit",
        "from tests import databases",
        "def late():\n    from tests.databases import Databases",
        "run('-m', 'tests.chaos')",
        "worker('tests.crash.tasks:app')",
    ):
        assert of_tests(modules_named(ast.parse(line))), line
    assert not of_tests(modules_named(ast.parse("import testset\nopen('tests/sim')")))


def test_make_test_runs_a_real_crash_of_each_kind_and_cause() -> None:
    """That a test has shown what its marker names is checked after it: tests/crash/conftest.py."""
    calls = [
        node
        for path in CODE
        if path.is_relative_to(ROOT / "tests" / "crash") and "mark.short" in read(path)
        for node in nodes(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.short"
    ]
    named = {ast.literal_eval(argument) for call in calls for argument in call.args}
    assert named == {*CrashKind, *DeathCause}


MAP_LINE = re.compile(r"^([a-z_0-9]+(?:\.py|/))  +\S", re.MULTILINE)
WITH_A_MAP = [
    ROOT / "harness" / "__init__.py",
    *(
        path
        for path in sorted((ROOT / "src" / "outlast").rglob("__init__.py"))
        if path.parent != ROOT / "src" / "outlast"
    ),
]


def files_of(folder: Path) -> list[str]:
    """Return the modules of a package, and its folders with a slash behind them."""
    modules = [path.name for path in folder.glob("*.py") if not path.name.startswith("__")]
    folders = [path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"]
    with_files = [path for path in folders if any(each.is_file() for each in path.iterdir())]
    return sorted([*modules, *(f"{path.name}/" for path in with_files)])


def unlike_the_map(path: Path) -> set[str]:
    """Return the files that a package's code map lacks, and those that it has alone or twice."""
    told = MAP_LINE.findall(ast.get_docstring(parsed(path)) or "")
    twice = {name for name in told if told.count(name) > 1}
    return {*told} ^ {*files_of(path.parent)} | twice


def test_the_code_map_of_a_package_names_each_of_its_files() -> None:
    assert faults(WITH_A_MAP, unlike_the_map) == {}


def test_no_public_class_of_the_library_has_the_name_of_another() -> None:
    found: dict[str, list[str]] = {}
    for path in CODE:
        if path.is_relative_to(ROOT / "src"):
            for node in nodes(parsed(path)):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(named(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def find_circle(graph: grimp.ImportGraph) -> list[str]:
    """Return modules that import each other in a circle, also lazily or for types alone."""
    try:
        TopologicalSorter(
            {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
        ).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_the_only_circle_of_imports_is_that_of_the_worker_in_process() -> None:
    """Why it is left: docs/decisions/0041."""
    graph = grimp.build_graph("outlast", cache_dir=None)
    assert {"outlast.client.app", "outlast.worker.in_process"} <= set(find_circle(graph))
    graph.remove_import(importer="outlast.client.app", imported="outlast.worker.in_process")
    assert find_circle(graph) == []


# Vague or archaic words, and those that have given way to words of the field: in prose and names.
BANNED = re.compile(
    r"(?<![a-z])(?:nobody|somebody|whoever|whatever|undertaker|heralds?|savings|crew|rooms"
    r"|anew|in\s+vain|so\s+many|half-way|for\s+ever|(?:in|out)side\s+of|needs?\s+a\s+hand"
    r"|that\s+was\s+known|came\s+of\s+it|none\s+any\s+more)(?![a-z])"
)
ALLOWED = ('getpwnam("nobody")',)  # the user of that name
WORDED = [
    *(path for path in TEXT if path.name != Path(__file__).name),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"),  # of old names
]


def banned_words(text: str) -> list[str]:
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)  # a class's name into its words
    return BANNED.findall(split.lower())


def test_prose_and_names_use_the_words_of_the_field() -> None:
    assert faults(WORDED, lambda path: banned_words(f"{named(path)}\n{read(path)}")) == {}


@each_case(
    "text",
    ["Nobody waits.", "rooms = []", "def test_whatever_comes():", "class CrewMember:", "so\nmany"],
)
def test_a_banned_word_is_found(text: str) -> None:
    assert banned_words(text) != []
    assert banned_words("mushrooms, Somerset, screw") == []
