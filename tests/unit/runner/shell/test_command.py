"""Commands of all kinds, in this process: their output, their ends, and what they leave behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import stat
import sys
import termios
import threading
import traceback
import tracemalloc
from pathlib import Path

import pytest

from outlast.runner.shell import command as module
from outlast.runner.shell import task
from outlast.runner.shell.command import CommandFailed, start_command
from tests.cases import each_case

SECONDS = 60.0


@pytest.fixture(autouse=True)
def _stdout_of_the_runner(capfd):
    """What commands write goes to descriptor 1."""


async def run(*argv: str, cwd: str | None = None, output: str | None = None, **env: str):
    """Run a command to its end; return its exit code and its last lines."""
    command = await start_command(argv, cwd=cwd, env={**os.environ, **env}, output=output)
    async with asyncio.timeout(SECONDS):
        code = await command.wait()
        return code, await command.clear()


def sh(script: str) -> tuple[str, str, str]:
    return ("sh", "-c", script)


async def test_output_goes_to_the_log_the_file_and_into_memory(tmp_path, capfd):
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    assert await run(*sh("echo one; echo two >&2"), output=str(log)) == (0, ["one", "two"])
    assert log.read_bytes() == b"before\none\ntwo\n"
    assert capfd.readouterr().out == "one\ntwo\n"


async def test_a_command_gets_arguments_folder_environment_and_empty_stdin(tmp_path):
    script = 'pwd; echo "$WORD|$1"; read line || echo nothing'
    code, lines = await run("sh", "-c", script, "x", "a b; *", cwd=str(tmp_path), WORD="word")
    assert (code, lines) == (0, [str(tmp_path), "word|a b; *", "nothing"])


@each_case(("script", "code"), [("exit 7", 7), ("kill -9 $$", -9), ("true", 0)])
async def test_the_exit_code_or_signal_is_returned(script, code):
    assert (await run(*sh(script)))[0] == code


@each_case(
    ("argv", "cwd", "output", "code", "word"),
    [
        (["no-such-command"], None, None, 127, "No such file or directory"),
        (["/etc/passwd"], None, None, 126, "Permission denied"),
        (["true"], "/no/such/folder", None, 127, "its folder: No such file or directory"),
        (["true", "a\0b"], None, None, 126, "null byte"),
        ([], None, None, None, "no command"),
        (["true", "x" * 200_000], None, None, 126, "Argument list too long"),
        (["true"], None, "/no/such/folder/log", None, "cannot be kept"),
        (["true"], None, "a\0b", None, "null "),
    ],
)
async def test_a_command_that_cannot_start_says_why(argv, cwd, output, code, word):
    with pytest.raises(CommandFailed, match=word) as failed:
        await run(*argv, cwd=cwd, output=output)
    assert failed.value.exit_code == code


@each_case(
    ("argv", "cwd", "output"),
    [
        (["/none/SECRET"], None, None),
        (["/none/SECRET\0"], None, None),
        (["true"], "/none/SECRET", None),
        (["true"], None, "/none/SECRET"),
        (["true"], None, "/SECRET\0"),
    ],
)
async def test_no_argument_stands_in_the_error_or_its_traceback(argv, cwd, output):
    """They are payloads: the error is in logs, spans, and on pages without that right."""
    with pytest.raises(CommandFailed) as failed:
        await run(*argv, cwd=cwd, output=output)
    assert "SECRET" not in "".join(traceback.format_exception(failed.value))
    assert failed.value.__context__ is None


async def test_the_file_of_output_is_its_owner_s_and_no_link(tmp_path):
    await run(*sh("echo out"), output=str(tmp_path / "log"))
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(CommandFailed, match="cannot be kept"):
        await run(*sh("echo out"), output=str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()


async def test_output_that_is_not_utf8_is_kept_raw_and_shown_with_replacements(tmp_path):
    odd = b"\xff\xfe\x00odd\x80"
    log = tmp_path / "log"
    script = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))"
    code, lines = await run(sys.executable, "-c", script, odd.hex(), output=str(log))
    assert (code, lines) == (0, ["\ufffd\ufffd\x00odd\ufffd"])
    assert log.read_bytes() == odd


@pytest.mark.slow
async def test_endless_output_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(module, "write_all", lambda fd, data: None)
    tracemalloc.start()
    try:
        code, lines = await run(
            *sh("yes | head -c 300000000; yes '' | tr '\\n' x | head -c 99999999")
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert code == 0
    assert lines[0] == "y"
    assert lines[-1].endswith("x" * 1000)
    assert peak < 10_000_000


async def test_a_slow_reader_slows_the_command_down(monkeypatch):
    """Nothing is buffered in between: the command blocks in its write, with one chunk under way."""
    goes_on, under_way, most = threading.Event(), [0], [0]

    def write(fd: int, data: bytes) -> None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        goes_on.wait(SECONDS)
        under_way[0] -= 1

    monkeypatch.setattr(module, "write_all", write)
    command = await start_command(sh("head -c 10000000 /dev/zero"), cwd=None, env={}, output=None)
    async with asyncio.timeout(SECONDS):
        full = 0
        while not command.has_ended and full < 50:
            await asyncio.sleep(0.001)
            full += waiting_in(command._carrier._read) >= 65_536
        assert not command.has_ended
        goes_on.set()
        assert await command.wait() == 0
        await command.clear()
    assert most == [1]


def waiting_in(pipe: int) -> int:
    """Return the bytes that are in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"    "), sys.byteorder)


async def test_a_child_that_keeps_the_output_open_is_killed_with_its_group():
    code, lines = await run(*sh("sleep 1000 & echo $!"))
    assert code == 0
    async with asyncio.timeout(SECONDS):
        while lives(int(lines[0])):
            await asyncio.sleep(0.01)


async def test_a_child_that_left_the_session_does_not_delay_the_end():
    """It goes on and holds the output open; its further output is not the command's."""
    script = (
        "import subprocess;print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    )
    code, lines = await run(sys.executable, "-c", script)
    assert code == 0
    assert lives(int(lines[0]))
    os.kill(int(lines[0]), signal.SIGKILL)


async def test_a_full_disk_ends_the_file_and_not_the_command():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    code, lines = await run(*sh("echo one; echo two"), output="/dev/full")
    assert code == 0
    assert {"one", "two"} <= set(lines)
    assert any(line.startswith("outlast: the rest is not in the file") for line in lines)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_command_may_ask_for_a_retry_repeatedly():
    pauses = [task._pause(number) for number in (1, 2, 3, 10, 1_025, 100_000)]
    assert pauses == [2.0, 4.0, 8.0, 600.0, 600.0, 600.0]
