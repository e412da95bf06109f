"""The wheel holds the whole package, and works where there is no source tree."""

from __future__ import annotations

import email
import json
import re
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast.wakeup.kinds import KINDS
from tests.package.wheel_kit import PACKAGE, ROOT, Installed, build, environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

BROUGHT = {  # by each extra, as Outlast imports it
    "postgres": {"asyncpg"},
    **{kind.name: {kind.package} for kind in KINDS.values()},
    "fast": {"uvloop"},
    "web": {"jinja2", "prometheus_client", "starlette", "uvicorn"},
    "metrics": {"prometheus_client"},
    "otel": {"opentelemetry"},
    "sentry": {"sentry_sdk"},
    "reload": {"watchfiles"},
    "crypto": {"cryptography"},
}
BROUGHT["all"] = set().union(*BROUGHT.values())
FRAMEWORKS = {"asgiref", "django"}  # of projects that use outlast.contrib; `all` has none of them
# Imports each module of the package and each of the names that are given; prints what is missing.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import outlast

missing = set()
found = pkgutil.walk_packages(outlast.__path__, "outlast.", onerror=lambda name: None)
for name in [*(module.name for module in found), *sys.argv[1:]]:
    try:
        importlib.import_module(name)
    except Exception as error:
        lacks = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(lacks, ModuleNotFoundError):
            raise
        missing.add(lacks.name.partition(".")[0])
print(json.dumps([outlast.__file__, sorted(missing)]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(tmp_path_factory.mktemp("dist"))


def files_of_the_package() -> set[str]:
    return {
        str(Path("outlast") / path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_each_file_of_the_package_and_nothing_else(
    built: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (declared,) = [name for name in wheel.namelist() if name.endswith("/entry_points.txt")]
        plugins = wheel.read(declared).decode()
    assert names == files_of_the_package() | {"pytest_outlast.py"}
    assert "[pytest11]\npytest_outlast = pytest_outlast\n" in plugins + "\n"
    assert "outlast/py.typed" in names
    assert [name for name in names if name.endswith(".sql")] != []


def test_the_description_has_no_link_that_leads_nowhere_from_a_registry(
    built: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    description = str(metadata.get_payload())
    assert description.startswith("# Outlast")
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", description) == []


def test_the_sdist_holds_what_make_needs(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    there = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    assert {name for name in there - names if not name.startswith(".")} == set()


def program() -> str:
    """Return the program on the front page; a page is a twentieth of a second."""
    (block, *_) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert "asyncio.sleep(1)" in block
    return str(block).replace("asyncio.sleep(1)", "asyncio.sleep(0.05)")


@contextmanager
def working(installed: Installed, url: str) -> Iterator[None]:
    """`outlast worker jobs:app` for the length of the block; it drains without an error."""
    with (
        (installed.home / "worker.log").open("w") as log,
        subprocess.Popen(
            [installed.bin / "outlast", "worker", "jobs:app", "--runners", "1"],
            cwd=installed.home,
            env=environment(OUTLAST_URL=url),
            stdout=log,
            stderr=log,
        ) as worker,
    ):
        try:
            yield
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(90) == 0
        finally:
            worker.kill()


def test_the_program_of_the_readme_runs_from_the_wheel(
    built: tuple[Path, Path], bare_store_url: str, tmp_path: Path
) -> None:
    installed = Installed(tmp_path, built[1], "postgres")
    (installed.home / "jobs.py").write_text(program())
    url = {"OUTLAST_URL": bare_store_url}
    ask = "from jobs import *; print(render.enqueue_sync('Emma', pages=30).result_sync(timeout=90))"
    with working(installed, bare_store_url):
        assert installed.run("python", "-c", ask, **url).strip() == "30"
    (job,) = json.loads(installed.run("outlast", "jobs", "--json", **url))["jobs"]
    assert (job["task"], job["state"]) == ("render", "completed")


def test_the_demo_runs_from_the_wheel_without_an_extra(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    installed = Installed(tmp_path, built[1])
    assert "  1 job, 1 closed attempt: 17 rules hold" in installed.run("outlast", "demo")


@pytest.mark.parametrize("extras", [(), *((extra,) for extra in BROUGHT)], ids=str)
def test_with_an_extra_all_that_needs_it_can_be_imported(
    built: tuple[Path, Path], extras: tuple[str, ...], tmp_path: Path
) -> None:
    installed = Installed(tmp_path, built[1], *extras)
    every = BROUGHT["all"]
    file, missing = json.loads(installed.run("python", "-c", IMPORT_ALL, *every))
    assert Path(file) == installed.packages / "outlast" / "__init__.py"
    left_out = every.difference(*(BROUGHT[extra] for extra in extras))
    assert set(missing) == left_out | FRAMEWORKS


def test_with_the_extra_of_django_a_new_project_is_in_order(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    installed = Installed(tmp_path, built[1], "django")
    installed.run("python", "-m", "django", "startproject", "bookshop", ".")
    with (installed.home / "bookshop" / "settings.py").open("a") as settings:
        settings.write('INSTALLED_APPS += ["outlast.contrib.django"]\n')
        settings.write('TASKS = {"default": {"BACKEND": "outlast.contrib.django.Backend"}}\n')
    assert "no issues" in installed.run("python", "manage.py", "check")
    told = installed.run("python", "manage.py", "outlast", "--version")
    assert told.startswith("outlast ")
