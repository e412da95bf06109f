"""``python -m outlast.probe livez``: ask a worker of this machine for its health, for exec probes.

It is started every few seconds, so it loads only sockets and argparse.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Sequence

PORT_VARIABLE = "OUTLAST_PROBE_PORT"
PORT_DEFAULT = 8081
SECONDS = 2.0  # for the whole answer, by default
ANSWER_MAX = 65_536  # bytes
FINE, NOT_WELL, WRONG_USE, NO_ANSWER = 0, 1, 2, 3
PROBES = ("startupz", "readyz", "livez")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the probe, and the worker's address; exit with WRONG_USE if there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m outlast.probe",
        description="Ask a worker that was started with --probe-port about its health.",
        epilog="exit codes: 0 healthy, 1 not healthy, 2 wrong usage, 3 no answer",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("probe", nargs="?", choices=PROBES, type=_bare, default="livez", help="default: livez")
    port = os.environ.get(PORT_VARIABLE) or str(PORT_DEFAULT)
    add("--port", type=_port, default=port, help=f"default: ${PORT_VARIABLE}, else {PORT_DEFAULT}")
    add("--host", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1")
    whole = f"for the whole answer; default: {SECONDS:g}"
    add("--timeout", metavar="SECONDS", type=_seconds, default=SECONDS, help=whole)
    return parser.parse_args(arguments)


def _bare(word: str) -> str:
    return word.strip("/")


def _port(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text[:6]) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write a number from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= 3600:  # noqa: PLR2004
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a time: write seconds, at most 3600")


def ask(host: str, port: int, probe: str, seconds: float) -> tuple[int, str]:
    """Return the status and the text of the answer. Raises OSError (which includes TimeoutError),
    and ValueError for an answer that is not a worker's."""
    from time import monotonic  # noqa: TID251

    until = monotonic() + seconds
    request = f"GET /{probe} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    answer = b""
    with socket.create_connection((host, port), seconds) as connection:
        connection.sendall(request.encode())
        while len(answer) < ANSWER_MAX:
            connection.settimeout(max(0.001, until - monotonic()))
            data = connection.recv(ANSWER_MAX)
            if not data:
                break
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    version, _, status = head.partition(b"\r\n")[0].partition(b" ")
    if not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
        raise ValueError("no worker listens there: the answer is not HTTP")
    return int(status[:3]), body.decode(errors="replace").strip()


def main(arguments: Sequence[str]) -> int:
    """Ask, print the answer, return the exit code."""
    asked = parse(arguments)
    where = f"{asked.host}:{asked.port}"
    try:
        status, text = ask(asked.host, asked.port, asked.probe, asked.timeout)
    except TimeoutError:
        return _fail(f"{asked.probe}: no answer from {where} within {asked.timeout:g} s")
    except OSError as error:
        why = error.strerror or type(error).__name__
        return _fail(f"{asked.probe}: no answer from {where}: {why}")
    except ValueError as error:
        return _fail(f"{asked.probe}: {where}: {error.args[0]}")
    print(f"{asked.probe}: {text}")  # noqa: T201
    return FINE if status == 200 else NOT_WELL  # noqa: PLR2004


def _fail(text: str) -> int:
    print(text, file=sys.stderr)  # noqa: T201
    return NO_ANSWER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
