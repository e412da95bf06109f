"""``outlast web``: what it refuses, and a server from its link to its end."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from outlast.base.passwords import read_users
from outlast.cli import main
from tests.cli.conftest import SECONDS, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Outlast

LINK = re.compile(r"http://\S+\?token=\S+")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, ["other machines", "--password-file"]),
        (["--host", "192.0.2.1", "--read-only"], 2, ["--no-auth"]),
        (["--no-auth", "--user-header", "x-user"], 2, ["give one of"]),
        (["--proxy", "10.0.0.1", "--password-file", "/none"], 2, ["--user-header"]),
        (["--proxy-secret", "/none"], 2, ["--user-header"]),
        (["--add-user", "ada"], 2, ["--password-file FILE"]),
        (["--user-header", "x-user", "--proxy", "ten"], 2, ["--proxy ten"]),
        (["--colour", "pink"], 2, ["colours are red"]),
        (["--hide", "("], 2, ["hide="]),
        (["--password-file", "/none"], 2, ["cannot be read"]),
        ([], 3, ["there is no database file"]),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_with_what_to_write(
    options: list[str],
    code: int,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["web", "--url", f"sqlite:///{tmp_path}/none.db", "--port", "0", *options]) == code
    told = capsys.readouterr().err
    assert all(word in told for word in words), told


def test_a_file_of_passwords_that_others_may_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users"
    users.write_text("ada:secret\n")
    users.chmod(0o644)
    assert main(["web", "--password-file", str(users)]) == 2
    assert "chmod 600" in capsys.readouterr().err
    users.chmod(0o600)
    assert main(["web", "--password-file", str(users)]) == 2
    told = capsys.readouterr().err
    assert "the password of 'ada' is not hashed" in told
    assert f"`outlast web --password-file {users} --add-user ada`" in told
    assert "secret" not in told


def test_a_user_is_added_from_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users"
    add = ["web", "--password-file", str(users), "--add-user", "ada"]
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert main(add) == 2
    assert not users.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\r\n"))
    assert main(add) == 0
    told = capsys.readouterr()
    assert "ada may sign in" in told.out
    assert "horse" not in told.out + told.err
    assert read_users(users)["ada"].is_of("correct horse")


def test_a_missing_library_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "outlast.cli.web_server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["web"]) == 2
    assert "the page needs uvicorn: pip install 'outlast[web]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "missing", "says"),
    [
        ([], ["uvicorn", "watchfiles"], "pip install 'outlast[reload,web]'"),
        ([], ["jinja2"], "pip install 'outlast[web]'; or --no-page"),
        (["--no-page"], ["uvicorn", "watchfiles"], "pip install 'outlast[reload]'"),
    ],
)
def test_dev_names_all_that_is_missing_at_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    missing: list[str],
    says: str,
) -> None:
    for library in missing:
        monkeypatch.setitem(sys.modules, library, None)
    assert main(["dev", "jobs:app", *options]) == 2
    assert capsys.readouterr().err == f"outlast: outlast dev needs extras: {says}\n"


OF_PROJECT = "from outlast.cli import main; raise SystemExit(main(program='manage.py outlast'))"


@pytest.mark.parametrize(
    ("start", "options", "below", "called"),
    [
        (["-m", "outlast"], [], "/", "outlast doctor MODULE:APP"),
        (["-c", OF_PROJECT], ["--prefix", "/a/b"], "/a/b/", "manage.py outlast doctor"),
    ],
    ids=["alone", "of a project, below a path"],
)
def test_the_link_works_once_and_ctrl_c_ends_the_server_with_a_page_open(
    outlast: Outlast, tmp_path: Path, start: list[str], options: list[str], below: str, called: str
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    assert outlast("migrate", "--url", url).code == 0
    command = [sys.executable, *start, "web", "--url", url, "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(), cwd=tmp_path
    ) as server:
        assert server.stdout is not None
        try:
            assert "the page of" in server.stdout.readline()
            link = LINK.findall(server.stdout.readline())[0]
            with httpx.Client(timeout=SECONDS, follow_redirects=True) as browser:
                first = browser.get(link)
                assert "Needs attention" in first.text
                assert first.url.path == below
                assert f"<code>{called}</code>" in browser.get(first.url.join("system")).text
                assert httpx.get(link, timeout=SECONDS).status_code == 401
                os.kill(server.pid, signal.SIGINT)  # while the browser's connection is open
                assert server.wait(SECONDS) == 130
        finally:
            server.kill()
