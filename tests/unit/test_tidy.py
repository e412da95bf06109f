"""The house rules that no linter knows: sizes, sleeps, notes without an issue, words."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from outlast.model.crash import CrashKind
from outlast.model.lease import DeathCause
from outlast.store import backend

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40  # without the signature and the docstring
CODE = sorted(
    path
    for folder in ("src", "tests", "harness", "bench", "examples", "tools")
    for path in (ROOT / folder).rglob("*.py")
)
TEXT = [*CODE, *sorted((ROOT / "src").rglob("*.sql"))]
NO_SLEEP = [
    path
    for folder in ("unit", "conformance", "postgres", "sqlite")
    for path in CODE
    if path.is_relative_to(ROOT / "tests" / folder)
]
# A note for later names its issue, as in TO-DO(#12), written in one word.
BARE_NOTE = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|X" + r"XX)\b(?!\(#\d+\))")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@pytest.mark.parametrize("path", TEXT, ids=named)
def test_a_file_fits_the_wall(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_FILE_LINES, f"{named(path)} has {lines} lines"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def lines_in(function: Function) -> int:
    """Return how many lines a function has after its signature and its docstring."""
    first, end = function.body[0], function.end_lineno or 0
    if ast.get_docstring(function) is not None:
        return end - (first.end_lineno or end)
    decorated = [each.lineno for each in getattr(first, "decorator_list", [])]
    return end - min([first.lineno, *decorated]) + 1


@pytest.mark.parametrize("path", CODE, ids=named)
def test_a_function_fits_the_wall(path: Path) -> None:
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, Function)]
    sizes = [(node.name, lines_in(node)) for node in functions]
    assert [(name, size) for name, size in sizes if size > MAX_FUNCTION_LINES] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f(): pass", 1),
        ("def f(\n    a,\n    b,\n):\n    a()\n    b()", 2),
        ('def f():\n    """One\n    two."""\n    # a\n    a()', 2),
        ('def f():\n    """Nothing else."""', 0),
        ("@a\ndef f():\n    @b\n    def g():\n        pass", 3),
        ("async def f():\n    a()\n\n    b()", 3),
    ],
)
def test_lines_of_a_function_are_those_after_signature_and_docstring(text: str, lines: int) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, Function)
    assert lines_in(function) == lines


@pytest.mark.parametrize("path", NO_SLEEP, ids=named)
def test_unit_and_conformance_tests_do_not_sleep(path: Path) -> None:
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert [node.lineno for node in calls if ast.unparse(node.func) == "time.sleep"] == []


@pytest.mark.parametrize("path", TEXT, ids=named)
def test_a_note_for_later_names_its_issue(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert [n for n, line in enumerate(lines, 1) if BARE_NOTE.search(line)] == []


def bare_errors(tree: ast.Module) -> list[int]:
    """Return the lines where an error is put into a text by itself: many say nothing."""
    caught = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name
    }
    caught.add("error")
    asked = {  # 'words' in str(error), str(error).startswith(...): nothing is shown
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare | ast.Attribute)
        for child in ast.iter_child_nodes(node)
    }
    shown = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _shows(node, caught)]
    return [node.lineno for node in shown if id(node) not in asked]


def _shows(node: ast.expr, caught: set[str]) -> bool:
    if isinstance(node, ast.FormattedValue) and node.conversion in {-1, ord("s")}:
        shown: ast.expr = node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args:
        shown = node.args[0]
    else:
        return False
    return isinstance(shown, ast.Name) and shown.id in caught


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=named)
def test_an_error_is_shown_by_text_of_or_describe(path: Path) -> None:
    if path.name != "errors.py" or path.parent.name != "outlast":
        assert bare_errors(parsed(path)) == []


def modules_named(tree: ast.Module) -> set[str]:
    """Return what a file imports, and each text in it that could be the name of a module."""
    nodes = list(ast.walk(tree))
    return {
        *(alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names),
        *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)),
        *(
            node.value.partition(":")[0]
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
    }


def of_tests(names: set[str]) -> set[str]:
    return {name for name in names if re.fullmatch(r"tests(\.\w+)*", name)}


NOT_TESTS = [path for path in CODE if not path.is_relative_to(ROOT / "tests")]


@pytest.mark.parametrize("path", NOT_TESTS, ids=named)
def test_only_tests_import_from_tests(path: Path) -> None:
    assert of_tests(modules_named(parsed(path))) == set()


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
        if path.is_relative_to(ROOT / "tests" / "crash")
        for node in ast.walk(parsed(path))
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


@pytest.mark.parametrize("path", WITH_A_MAP, ids=named)
def test_the_code_map_of_a_package_names_each_of_its_files(path: Path) -> None:
    told = MAP_LINE.findall(ast.get_docstring(parsed(path)) or "")
    assert sorted(told) == files_of(path.parent)


def test_no_public_class_of_the_library_has_the_name_of_another() -> None:
    found: dict[str, list[str]] = {}
    for path in CODE:
        if path.is_relative_to(ROOT / "src"):
            for node in ast.walk(parsed(path)):
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
    assert {"outlast.app", "outlast.worker.in_process"} <= set(find_circle(graph))
    graph.remove_import(importer="outlast.app", imported="outlast.worker.in_process")
    assert find_circle(graph) == []


# Vague or archaic words, and those that have given way to words of the field: in prose and names.
BANNED = re.compile(
    r"(?<![a-z])(?:nobody|somebody|whoever|whatever|undertaker|heralds?|savings|crew|rooms"
    r"|anew|in\s+vain|so\s+many|half-way|for\s+ever|(?:in|out)side\s+of)(?![a-z])"
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


@pytest.mark.parametrize("path", WORDED, ids=named)
def test_prose_and_names_use_the_words_of_the_field(path: Path) -> None:
    assert banned_words(path.read_text()) == []
    assert banned_words(named(path)) == []


@pytest.mark.parametrize(
    "text",
    ["Nobody waits.", "rooms = []", "def test_whatever_comes():", "class CrewMember:", "so\nmany"],
)
def test_a_banned_word_is_found(text: str) -> None:
    assert banned_words(text) != []
    assert banned_words("mushrooms, Somerset, screw") == []


LIBRARY = ROOT / "src" / "outlast"
OF_ONE_STORE = [path.parent for path in (LIBRARY / "store").glob("*/backend.py")]
FOLDERS = "|".join(sorted(path.name for path in OF_ONE_STORE))
SCHEMES = "|".join(scheme for each in backend._backends for scheme in each.schemes)
REGISTRY = LIBRARY / "store" / "__init__.py"
NAMES_A_STORE = re.compile(rf"({FOLDERS}|{SCHEMES})(:.*)?$", re.IGNORECASE)
SHARED_CODE = [
    path
    for path in CODE
    if path.is_relative_to(LIBRARY) and not any(path.is_relative_to(own) for own in OF_ONE_STORE)
]


@cache
def classes_of_stores() -> frozenset[str]:
    """Return the names of all classes that are defined in the folder of one store."""
    return frozenset(
        node.name
        for path in CODE
        if any(path.is_relative_to(own) for own in OF_ONE_STORE)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )


def store_switches(tree: ast.Module) -> list[int]:
    """Return the lines that ask which of the stores they have: by a name or by a class."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.AST) and _asks(node)]  # type: ignore[attr-defined]


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_names_a_store(each) for each in (node.left, *node.comparators))
    if isinstance(node, ast.MatchValue):
        return _names_a_store(node.value)
    if isinstance(node, ast.MatchClass):
        return _has_a_class_of_a_store(node.cls)
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func).rpartition(".")[2]
    if called in {"isinstance", "issubclass"}:
        return _has_a_class_of_a_store(node.args[1])
    if called in {"startswith", "removeprefix", "match", "fullmatch"}:
        return any(_names_a_store(each) for each in node.args)
    return False


def _names_a_store(node: ast.expr) -> bool:
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return any(isinstance(text, str) and NAMES_A_STORE.match(text) for text in texts)


def _has_a_class_of_a_store(node: ast.expr) -> bool:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return bool(names & classes_of_stores())


def imports_of_stores(tree: ast.Module) -> set[str]:
    """Return what is imported from the folder of one store, lazily or not."""
    named = {
        each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
    } | {
        f"{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    return {name for name in named if re.match(rf"outlast\.store\.({FOLDERS})\b", name)}


@pytest.mark.parametrize("path", SHARED_CODE, ids=named)
def test_only_the_entry_of_a_store_knows_which_store_it_is(path: Path) -> None:
    assert store_switches(parsed(path)) == []
    if path != REGISTRY:
        assert imports_of_stores(parsed(path)) == set()


def test_the_registry_imports_entries_alone() -> None:
    assert imports_of_stores(parsed(REGISTRY)) == {
        f"outlast.store.{path.name}.backend.{path.name.upper()}" for path in OF_ONE_STORE
    }
    assert len(backend._backends) == len(OF_ONE_STORE)


@pytest.mark.parametrize(
    "switch",
    [
        'url.startswith("sqlite")',
        'url.lower().startswith(("sqlite:", "x"))',
        'scheme == "postgresql"',
        'scheme in {"postgres", "postgresql"}',
        "isinstance(store, SqliteStore)",
        "isinstance(store, (int, postgres.PostgresStore))",
        "isinstance(facts, int | SqliteFacts)",
        'match scheme:\n    case "sqlite":\n        pass',
        "match store:\n    case SqliteStore():\n        pass",
        're.match("postgres:", url)',
    ],
)
def test_a_switch_on_the_store_is_found(switch: str) -> None:
    assert store_switches(ast.parse(switch))


@pytest.mark.parametrize(
    "line", ["from outlast.store.sqlite import url", "import outlast.store.postgres.pool"]
)
def test_an_import_of_one_store_is_found(line: str) -> None:
    assert imports_of_stores(ast.parse(f"def lazily():\n    {line}"))
