"""The page in the open: `outlast web` behind nginx, which compresses, below a path and under a name
that is not localhost, over plain HTTP, in Chromium.

The lines of nginx are those of docs/page.md, with its address and nothing else changed; and, for a
proxy that cannot strip the path, without the slash that lets nginx do so.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.browser import ELSEWHERE, Browser
from harness.scene import ROOT
from harness.servers import Disposable, free_port, start_janitor
from outlast.store import open_store
from outlast.store.protocol import Store
from tests.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.nginx,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(300),
]
PAGE = ROOT / "docs" / "page.md"
SECONDS = 60.0
PAUSE = "Pause all queues"
OUTLAST = [sys.executable, "-m", "outlast"]
CONFIGURATION = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
    log_format seen "$status $request_uri $sent_http_content_encoding $http_if_none_match";
    access_log {folder}/access.log seen;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    gzip on;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


class Nginx(Disposable):
    """nginx on a free port of this machine, with the location that docs/page.md recommends."""

    def __init__(self, program: str, location: str) -> None:
        self._program = program
        self._location = location
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-nginx-"))
        self._janitor = start_janitor(self.folder, self.folder / "pid")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        values = {"folder": self.folder, "port": self.port, "location": self._location}
        written = self.folder / "nginx.conf"
        written.write_text(CONFIGURATION.format(**values))
        self._process = subprocess.Popen(
            [self._program, "-e", self.folder / "error.log", "-p", self.folder, "-c", written],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self) -> None:
        until(lambda: (self.folder / "pid").exists() or self._has_ended(), "nginx")
        assert not self._has_ended(), (self.folder / "error.log").read_text()

    def has_seen(self, start: str) -> bool:
        """Whether a line of its log begins so: status, path, encoding, copy that the client has."""
        lines = (self.folder / "access.log").read_text().splitlines()
        return any(line.replace(r"\x22", '"').startswith(start) for line in lines)

    def dispose(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(SECONDS)
        self.remove_folder()

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


def location_of_the_docs(port: int, *, strips: bool = True) -> tuple[str, str]:
    """Return the lines for nginx that the docs recommend, to the page on this port, and the path
    below which the page is then. ``strips``: nginx takes that path away."""
    (lines,) = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (path,) = re.findall(r"^location (\S+) \{", lines, re.MULTILINE)
    assert "127.0.0.1:8010/;" in lines
    end = "/" if strips else ""
    return lines.replace("127.0.0.1:8010/", f"127.0.0.1:{port}{end}"), path


@pytest.fixture(params=[True, False], ids=["a path that is stripped", "a path that is not"])
def strips(request: pytest.FixtureRequest) -> bool:
    """Whether the proxy takes the path away."""
    return bool(request.param)


@pytest.fixture
def page(sqlite_url: str, tmp_path: Path, strips: bool) -> Iterator[int]:
    """`outlast web` of an empty store as the docs start it, for one user; its port."""
    asyncio.run(read_pauses(sqlite_url))
    env = {**os.environ, "OUTLAST_URL": sqlite_url, "PYTHONPATH": str(ROOT / "src")}
    users, port = str(tmp_path / "users"), free_port()
    add = [*OUTLAST, "web", "--password-file", users, "--add-user", "ada"]
    subprocess.run(add, input=b"correct horse\n", env=env, check=True, capture_output=True)
    options = ["--port", str(port), "--password-file", users, "--allow-host", ELSEWHERE]
    options += [] if strips else ["--prefix", location_of_the_docs(port)[1]]
    log = tmp_path / "web.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*OUTLAST, "web", *options], env=env, stdout=output, stderr=output, cwd=tmp_path
        )
    try:
        until(lambda: f":{port}" in log.read_text() or process.poll() is not None, "the page")
        assert process.poll() is None, log.read_text()
        yield port
    finally:
        process.terminate()
        process.wait(SECONDS)


async def read_pauses(url: str) -> list[str]:
    """Return who has paused what; it makes the store if there is none."""
    store: Store = open_store(url)
    await store.open()
    try:
        return [f"{one.kind.value} by {one.paused_by}" for one in await store.inspector.pauses()]
    finally:
        await store.close()


def test_a_user_signs_in_and_acts_and_open_pages_cost_nothing(
    page: int, strips: bool, sqlite_url: str, browser: Browser
) -> None:
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: make debian installs it")
    location, path = location_of_the_docs(page, strips=strips)
    with Nginx(program, location) as nginx:
        named = f"{ELSEWHERE}:{nginx.port}{path}"
        browser.open(f"http://{named}queues")
        assert PAUSE not in browser.driver.page_source, "without a sign-in"
        browser.open(f"http://ada:correct%20horse@{named}queues")
        browser.wait(lambda each: PAUSE in each.driver.page_source, "the page of a user")

        until(lambda: nginx.has_seen(rf'304 {path}queues - W/"'), "the page to be unchanged")
        assert nginx.has_seen(f"200 {path}queues gzip ")

        browser.run("document.querySelector('details:has(form) summary').click()")
        browser.run("document.querySelector(\"form[action$='/pause'] button\").click()")
        browser.wait(lambda each: PAUSE not in each.driver.page_source, "the answer")
        assert "From another site" not in browser.text()
        assert asyncio.run(read_pauses(sqlite_url)) == ["all by ada"]
        assert f"@{named}" in browser.driver.current_url, "a form leads out of its path"
