"""``python -m outlast.probe livez``: ask a worker of this machine for its health, for exec probes.

It is started every few seconds, so it loads only the standard library's sockets.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

PORT_VARIABLE = "OUTLAST_PROBE_PORT"
PORT_DEFAULT = 8081
SECONDS = 2.0  # for the whole answer, by default (--timeout)
ANSWER_MAX = 65_536  # bytes
FINE, NOT_WELL, WRONG_USE, NO_ANSWER = 0, 1, 2, 3
PROBES = ("startupz", "readyz", "livez")
USAGE = f"""\
usage: python -m outlast.probe [startupz|readyz|livez] [--port N] [--host ADDRESS]
                               [--timeout SECONDS]

Ask the worker that was started with --probe-port how it is; default: livez.

  --port N           its port; default: ${PORT_VARIABLE}, else {PORT_DEFAULT}
  --host ADDRESS     default: 127.0.0.1
  --timeout SECONDS  for the whole answer; default: {SECONDS:g}

exit codes: 0 it is well, 1 it says that it is not, 2 wrong usage, 3 no answer
"""


class WrongUse(Exception):
    """The arguments make no sense."""


class Asked:
    """The probe to ask for, the worker's address, and the seconds to wait."""

    def __init__(self) -> None:
        self.probe = "livez"
        self.host = "127.0.0.1"
        self.port = os.environ.get(PORT_VARIABLE) or str(PORT_DEFAULT)
        self.timeout = str(SECONDS)

    def check(self) -> tuple[int, float]:
        """Return port and seconds as numbers. Raises WrongUse."""
        if not (self.port.isdecimal() and len(self.port) < 6 and 0 < int(self.port) < 2**16):  # noqa: PLR2004
            raise WrongUse(f"{self.port!r} is not a port: write a number from 1 to 65535")
        try:
            seconds = float(self.timeout)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= 3600:  # noqa: PLR2004
            raise WrongUse(f"{self.timeout!r} is not a time: write seconds, at most 3600")
        return int(self.port), seconds


def parse(arguments: Sequence[str]) -> Asked:
    """Return the request that the arguments describe. Raises WrongUse."""
    asked, left, probes = Asked(), list(arguments), 0
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        if flag in {"--port", "--host", "--timeout"}:
            if not equals and not left:
                raise WrongUse(f"{flag} takes a value")
            setattr(asked, flag[2:], value if equals else left.pop(0))
        elif word.strip("/") in PROBES and not probes:
            asked.probe, probes = word.strip("/"), 1
        else:
            raise WrongUse(
                f"{word!r} is neither an option nor a probe; the probes are {', '.join(PROBES)}"
            )
    return asked


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
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")  # noqa: T201
        return FINE
    try:
        asked = parse(arguments)
        port, seconds = asked.check()
    except WrongUse as error:
        return _say(WRONG_USE, f"{error.args[0]}\n{USAGE}")
    where = f"{asked.host}:{port}"
    try:
        status, text = ask(asked.host, port, asked.probe, seconds)
    except TimeoutError:
        return _say(NO_ANSWER, f"{asked.probe}: no answer from {where} within {seconds:g} s")
    except OSError as error:
        why = error.strerror or type(error).__name__
        return _say(NO_ANSWER, f"{asked.probe}: no answer from {where}: {why}")
    except ValueError as error:
        return _say(NO_ANSWER, f"{asked.probe}: {where}: {error.args[0]}")
    print(f"{asked.probe}: {text}")  # noqa: T201
    return FINE if status == 200 else NOT_WELL  # noqa: PLR2004


def _say(code: int, text: str) -> int:
    print(text, file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
