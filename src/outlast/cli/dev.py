"""``outlast dev``: a worker that reloads, and the page, in one terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from outlast.cli.application import check_application
from outlast.cli.options import Application, AppUrl, flag, option
from outlast.cli.web import PAGE_NEEDS
from outlast.cli.worker import Settings, prepare_reload, setting, worker
from outlast.errors import UsageError
from outlast.events import subscribe
from outlast.store.backend import resolve_url

DRAIN_SECONDS = 1.0  # for attempts to end, as at a reload
END_SECONDS = 5.0  # for the page to end
PORT = 8010
# the page ends with this process, however that ends
PAGE = (
    "import sys; from outlast.runner.tether import die_with_parent; die_with_parent();"
    " from outlast.cli import main; sys.exit(main(sys.argv[2:], program=sys.argv[1]))"
)


def dev(
    context: typer.Context,
    app: Application,
    url: AppUrl = None,
    queues: Annotated[str | None, setting("queues")] = None,
    runners: Annotated[int | None, setting("runners")] = 1,
    concurrency: Annotated[int | None, setting("concurrency")] = None,
    port: Annotated[
        int, option("--port", "N", "The port of the page; 0: any free one.", min=0, max=65_535)
    ] = PORT,
    no_page: Annotated[bool, flag("--no-page", "Start only the worker, not the page.")] = False,
) -> None:
    """Run jobs while you write tasks: a worker that reloads, its log, and the page.

    It runs `outlast worker --reload --logs` with one runner, and `outlast web`, open to this
    machine only, whose link it prints. The page needs outlast[web], the reload outlast[reload]. One
    Ctrl-C ends both; jobs whose attempts have not ended a second later return to the queue,
    uncharged.

    Examples:
        outlast dev shop.jobs:app
        outlast dev shop.jobs:app --runners 4 --port 8011
        outlast dev shop.jobs:app --no-page
    """
    check_extras(page=not no_page)
    prepare_reload(app)
    address = resolve_url(check_application(app).url if url is None else url)
    program = context.find_root().info_name or "outlast"
    with contextlib.nullcontext() if no_page else _page(program, address, port):
        worker(
            app,
            url=address,
            settings=Settings(
                queues=queues,
                runners=runners,
                concurrency=concurrency,
                drain_timeout=DRAIN_SECONDS,
            ),
            reload=True,
            logs=True,
        )


def check_extras(*, page: bool) -> None:
    """Raise a UsageError that names all missing extras at once."""
    needed = {"reload": ["watchfiles"]} | ({"web": list(PAGE_NEEDS)} if page else {})
    missing = [
        extra
        for extra, libraries in needed.items()
        if any(importlib.util.find_spec(library) is None for library in libraries)
    ]
    if missing:
        extras = ",".join(sorted(missing))
        rest = "; or --no-page" if missing == ["web"] else ""
        raise UsageError(f"outlast dev needs extras: pip install 'outlast[{extras}]'{rest}")


@contextlib.contextmanager
def _page(program: str, address: str, port: int) -> Iterator[None]:
    """Serve the page from the moment the first runner is ready (then the store exists) to the
    end."""
    started: list[subprocess.Popen[bytes]] = []

    def listen(name: str, fields: dict[str, object]) -> None:
        if name == "runner_ready" and not started:
            started.append(_start_page(program, address, port))

    unsubscribe = subscribe(listen)
    try:
        yield
    finally:
        unsubscribe()
        for page in started:
            _end(page)


def _start_page(program: str, address: str, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PAGE, program, "web", "--port", str(port)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OUTLAST_URL": address},  # not an argument: it may hold a password
    )


def _end(page: subprocess.Popen[bytes]) -> None:
    page.terminate()
    try:
        page.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        page.kill()
        page.wait()
