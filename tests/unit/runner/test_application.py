"""How an application is found: what cannot be one is refused, with what to do instead."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import outlast
from outlast.errors import ApplicationError, SchemaMismatch, StoreUnavailable
from outlast.runner import main
from outlast.runner.application import load_app
from outlast.runner.protocol import RunnerSettings
from tests.cases import each_case

SWEEP = """
import outlast
app = outlast.App("sqlite:///{store}")
@app.task
def fit(alpha: float) -> float: ...
{many}
"""
ONE_BY_ONE = "for alpha in range(3): fit.enqueue_sync(alpha)"
IN_ONE_GO = "app.enqueue_many_sync(fit.call(alpha) for alpha in range(3))"


@pytest.mark.parametrize("many", [ONE_BY_ONE, IN_ONE_GO])
def test_an_application_that_enqueues_while_it_is_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: str
) -> None:
    """Each runner imports it: three jobs would become fifteen with the first worker."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "sweep", None)  # is set back at the end
    del sys.modules["sweep"]
    store = tmp_path / "jobs.db"
    (tmp_path / "sweep.py").write_text(SWEEP.format(store=store, many=many))
    with pytest.raises(
        ApplicationError, match=r"sweep enqueues a job while it is imported.*__main__"
    ):
        load_app("sweep:app")
    assert not store.exists()
    (tmp_path / "sweep.py").write_text(SWEEP.format(store=store, many="call = fit.call(1.0)"))
    app = load_app("sweep:app")
    app.tasks["fit"].enqueue_sync(1.0)  # the import has ended
    app.close_sync()


@each_case(
    ("spec", "says"),
    [
        ("fits.ipynb:app", "'fits.ipynb' is a notebook: .* name that: jobs:app"),
        ("__main__:fits", "'__main__' is another module in each program"),
    ],
)
def test_what_a_notebook_has_is_not_found_by_workers(spec: str, says: str) -> None:
    with pytest.raises(ApplicationError, match=says):
        load_app(spec)


def test_a_package_without_an_application_says_which_modules_may_have_it() -> None:
    with pytest.raises(ApplicationError, match=r"'wsgiref' has no 'app'; is it in .*wsgiref\."):
        load_app("wsgiref:app")


def test_a_module_without_an_application_says_what_to_write() -> None:
    says = r"'wsgiref\.util' has no 'app'; write app = outlast\.App\(URL\) in it"
    with pytest.raises(ApplicationError, match=says):
        load_app("wsgiref.util:app")


@each_case(
    ("spec", "says"),
    [
        ("books", "write MODULE:APP, as in books:app"),
        ("nowhere", "write MODULE:APP, as in shop.jobs:app"),
        ("boks:app", "no module named 'boks': did you mean books?"),
        ("nowhere:app", "is it spelt right, and is this its folder?"),
    ],
)
def test_a_wrong_name_is_told_with_what_is_here(
    spec: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "books.py").write_text("import outlast\napp = outlast.App()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    with pytest.raises(ApplicationError) as refused:
        load_app(spec)
    assert says in str(refused.value)


@pytest.fixture
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test an environment that it may change, as a runner does its own."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("OUTLAST_URL", None)


@pytest.mark.usefixtures("_own_environment")
async def test_a_task_that_was_led_to_another_place_makes_no_store_there(
    bare_store_url: str,
) -> None:
    """As by a variable such as $PGDATABASE, set for a child process: no worker would look there."""
    app = outlast.App("sqlite:///of_the_worker.db")
    settings = RunnerSettings(
        app="", stacks=-1, concurrency=1, store_id="", url=bare_store_url, wakeup=None
    )
    main.join_worker(app, settings)
    with pytest.raises((SchemaMismatch, StoreUnavailable)):
        await app.task(name="mail")(lambda: None).enqueue()


@pytest.mark.usefixtures("_own_environment")
@pytest.mark.parametrize("password", ["", ":Zecret"])
def test_what_a_task_starts_is_led_to_the_store_of_its_worker(password: str) -> None:
    """A new interpreter imports the application again, and would find the default store."""
    given = f"postgresql://me{password}@h/shop"
    settings = RunnerSettings(app="", stacks=-1, concurrency=1, store_id="", url=given)
    main.join_worker(outlast.App(), settings)
    found = outlast.App().url
    assert "Zecret" not in found
    assert found.startswith("postgresql://me")
    assert found.endswith("@h/shop")


@pytest.mark.usefixtures("_own_environment")
async def test_a_task_that_was_led_to_another_store_stores_nothing_there(
    bare_store_url: str,
) -> None:
    mine = outlast.App(bare_store_url)
    async with mine:
        own = await mine.stores.store_id()
    for store_id, refuses in ((own, False), ("another", True)):
        app = outlast.App(bare_store_url)
        settings = RunnerSettings(
            app="", stacks=-1, concurrency=1, store_id=store_id, url=bare_store_url, wakeup=None
        )
        main.join_worker(app, settings)
        with pytest.raises(SchemaMismatch, match="PGDATABASE") if refuses else nullcontext():
            await app.task(name="mail")(lambda: None).enqueue()
        await app.close()
    await mine.close()
