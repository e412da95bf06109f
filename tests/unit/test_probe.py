"""``python -m outlast.probe``: what it asks, what it prints, and what it does not import."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from outlast import probe
from outlast.probe import FINE, NO_ANSWER, NOT_WELL, PORT_VARIABLE, WRONG_USE
from tests.cases import each_case

HEAVY = {"asyncio", "http", "logging", "msgspec", "ssl", "structlog", "typing", "rich"}


IMPORTED = """
import importlib.util, sys
before = set(sys.modules)
from outlast.probe import main
main(["--port", "1", "--host", "127.0.0.1"])
print(*(set(sys.modules) - before))
"""


@contextmanager
def answering(*pieces: bytes, hang: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers one client; yield its port and what it was asked."""
    asked: list[bytes] = []
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                asked.append(client.recv(65_536))
                with suppress(OSError):  # the client may have left
                    for piece in pieces:
                        client.sendall(piece)
                if hang:
                    over.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(listening.getsockname()[1]), asked
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [(b"200 OK", "live", FINE), (b"503 Service Unavailable", "not live: it hangs", NOT_WELL)],
)
def test_the_exit_code_says_whether_the_worker_is_well(
    capsys: pytest.CaptureFixture[str], status: bytes, text: str, code: int
) -> None:
    answer = (b"HTTP/1.1 ", status, b"\r\nConnection: close\r\n\r\n", text.encode(), b"\n")
    with answering(*answer) as (port, asked):
        assert probe.main(["livez", "--port", port]) == code
    assert asked[0].startswith(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert capsys.readouterr().out == f"livez: {text}\n"


def test_which_probe_is_asked_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, asked):
        monkeypatch.setenv("OUTLAST_PROBE_PORT", port)
        assert probe.main(["/readyz", "--timeout=30"]) == FINE
    assert asked[0].startswith(b"GET /readyz ")


def test_no_answer_is_another_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and it does not listen
        port = str(bound.getsockname()[1])
        assert probe.main(["--port", port]) == NO_ANSWER
    refused = f"livez: no answer from 127.0.0.1:{port}: Connection refused\n"
    assert capsys.readouterr().err == refused
    with answering(b"HTTP/1.1 200 OK\r\n\r\nli", hang=True) as (port, _):
        assert probe.main(["--port", port, "--timeout", "0.05"]) == NO_ANSWER
    assert capsys.readouterr().err == f"livez: no answer from 127.0.0.1:{port} within 0.05 s\n"


@pytest.mark.parametrize("answer", [b"", b"220 mail ESMTP\r\n", b"HTTP/1.1 OK\r\n\r\n"])
def test_what_is_no_worker_gives_no_answer(
    capsys: pytest.CaptureFixture[str], answer: bytes
) -> None:
    with answering(answer) as (port, _):
        assert probe.main(["--port", port]) == NO_ANSWER
    assert "no worker listens there" in capsys.readouterr().err


@each_case(
    ("arguments", "says"),
    [
        (["health"], "invalid choice: 'health' (choose from"),
        (["livez", "readyz"], "unrecognized arguments: readyz"),
        (["--port"], "--port: expected one argument"),
        (["--port", "http"], "'http' is not a port"),
        (["--port=0"], "'0' is not a port"),
        (["--port=99999"], "'99999' is not a port"),
        (["--port=80810"], "'80810' is not a port"),
        (["--port=1000000"], "'1000000' is not a port"),
        (["--port=-1"], "'-1' is not a port"),
        (["--timeout", "soon"], "'soon' is not a time"),
        (["--timeout", "nan"], "'nan' is not a time"),
        (["--timeout", "0"], "'0' is not a time"),
    ],
)
def test_wrong_use_is_told(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        probe.main(arguments)
    assert ended.value.code == WRONG_USE
    assert says in capsys.readouterr().err


def test_a_wrong_port_in_the_environment_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PORT_VARIABLE, "http")
    with pytest.raises(SystemExit):
        probe.main([])
    assert "'http' is not a port" in capsys.readouterr().err


def test_help_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        probe.main(["--help"])
    assert ended.value.code == FINE
    told = capsys.readouterr().out
    assert "--timeout SECONDS" in told
    assert "exit codes: 0 healthy" in told


def test_it_imports_little() -> None:
    """It is started every few seconds: what it imports is what it costs."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=60
    )
    modules = set(done.stdout.split())
    assert {"outlast", "outlast.probe", "socket"} <= modules
    assert HEAVY & modules == set()
    assert {name for name in modules if name.startswith("outlast.")} == {"outlast.probe"}


def test_as_a_module_it_exits_with_the_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outlast.probe", "nonsense"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == WRONG_USE
    assert "invalid choice: 'nonsense'" in done.stderr
