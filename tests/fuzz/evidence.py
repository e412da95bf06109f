"""What a worker reads of processes: output, stacks, and files of /proc with names of strangers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from outlast.model.crash import OUTPUT_LINES_MAX
from outlast.runner.stacks import current_attempt, line_of, own_first
from outlast.runner.tail import LINE_BYTES_MAX
from outlast.store.lockfile import _find_mount
from outlast.worker.runners import recycling
from outlast.worker.runners.output import _HEAD_MAX, Printed
from outlast.worker.runners.process import STACKS_BYTES_MAX
from tests.fuzz.kit import DIGITS, Fuzzer, damaged
from tests.manual_clock import ManualClock

# --- output

heads = st.builds(
    lambda token, size: b"\x1eoutlast %d %d\x1f" % (token, size),
    st.sampled_from([0, 1, 2, 99, 10**18, 10**30]),
    st.integers(0, 30) | st.sampled_from([4_096, 99_999]),
)
pieces = st.one_of(
    heads,
    damaged(heads, most=2),
    st.binary(max_size=30),
    st.builds(
        lambda what, count: what * count,
        st.sampled_from([b"x", b"\n", b"\x1e", b"\xff"]),
        st.integers(0, 20_000),
    ),
    st.builds(lambda head, text: head + text, heads, st.binary(max_size=30)),
)


class Written(msgspec.Struct, frozen=True):
    """The output of a runner, chunk by chunk, while these attempts were in it."""

    chunks: list[bytes]
    tokens: set[int]


def output_is_told_apart(one: Written) -> None:
    """No byte is invented, none without a head is lost, and the kept output is bounded."""
    printed = Printed(lambda: one.tokens, ManualClock())
    text = b""
    for chunk in one.chunks:
        for token, part in printed.take(chunk):
            assert token is None or token in one.tokens
            text += part
        assert len(printed._unread) <= _HEAD_MAX
    assert len(text) <= sum(map(len, one.chunks))
    if b"\x1e" not in b"".join(one.chunks):
        assert text == b"".join(one.chunks)
    for token in (0, 1, 2, 99):
        told = printed.lines_of(token, since=0.0)
        assert len(told) <= OUTPUT_LINES_MAX
        assert all(len(line) <= max(LINE_BYTES_MAX, 20_000 * 2) for line in told)
    printed.unfinished()
    printed.forget([0, 1, 2, 99])
    assert not printed._own.keys() & {0, 1, 2, 99}


# --- stacks

stack_pieces = st.sampled_from(
    [
        "Current thread 0x00007f (most recent call first):\n",
        "Thread 0x00007f (most recent call first):\n",
        "Fatal Python error: Segmentation fault\n\n",
        '  File "/app/jobs.py", line 3 in work\n',
        '  File "<string>", line 1 in outlast_attempt_1\n',
        '  File "x", line 1 in outlast_attempt_22\n',
        f'  File "x", line 1 in outlast_attempt_{DIGITS}\n',
        '  File "x", line 1 in outlast_attempt_٣\n',
        '  File "',
        '", line ',
        " in ",
        " in outlast_attempt_",
        "\n",
        "\n\n",
        '"',
        " ",
        "7",
    ]
)
stacks = st.lists(
    st.builds(
        lambda what, count: (what * count)[:9_000], stack_pieces, st.sampled_from([1, 2, 500])
    )
    | st.text(max_size=9),
    max_size=8,
).map(lambda parts: "".join(parts)[-STACKS_BYTES_MAX:])


def stacks_are_understood(text: str) -> None:
    """The token of an attempt or None; a line of the text or None."""
    token = current_attempt(text)
    assert token is None or 0 <= token < 10**19
    for each in {1, 22, token or 0}:
        line = line_of(text, each)
        assert line is None or line in text
        assert len(own_first(text, each)) <= len(text) + 2


# --- /proc

names = st.text(
    st.characters(blacklist_characters="\0\n/", blacklist_categories=["Cs"]), max_size=15
)
odd_names = st.one_of(names, st.sampled_from([") R 1 2 3", "a b", "x)", "(", "\u00a0", "\\"]))


def _octal(name: str) -> str:
    return "".join(f"\\{ord(one):03o}" if one in " \t\\" else one for one in name)


class Proc(msgspec.Struct, frozen=True):
    """Names that strangers choose: of a process, a mount point, a cgroup."""

    command: str
    mounts: list[str]
    cgroup: str
    raw: bytes


procs = st.builds(
    Proc, odd_names, st.lists(odd_names, max_size=3), odd_names, st.binary(max_size=4)
)


def proc_is_read(one: Proc) -> None:
    """Names of strangers hide neither memory nor what a file system is."""
    with tempfile.TemporaryDirectory() as root:
        proc, mount = Path(root) / "proc", Path(root) / "cg"
        for folder in (proc / "7", proc / "self", mount / "mine"):
            folder.mkdir(parents=True)
        numbers = " ".join(str(number) for number in range(1, 50))
        stat = f"7 ({one.command}) S {numbers}\n".encode()
        (proc / "7" / "stat").write_bytes(stat)
        assert recycling.read_resident_of(7, proc) == 21 * recycling._PAGE
        assert recycling.read_resident(proc) == {3: 21 * recycling._PAGE}
        (mount / "mine" / "memory.events").write_text("low 0\noom_kill 3\n")
        (proc / "self" / "cgroup").write_text(f"1:name={one.cgroup}:/x\n0::/mine\n")
        lines = [f"30 1 0:1 / /{_octal(each)} rw - fuse.x y rw" for each in one.mounts]
        lines.append(f"31 1 0:2 / {mount} rw - cgroup2 cgroup rw\n")
        raw = one.raw.replace(b"\n", b"").replace(b" ", b"").replace(b"\\", b"")
        text = b"29 1 0:3 / /" + raw + b" rw - ext4 y rw\n" + "\n".join(lines).encode()
        (proc / "self" / "mountinfo").write_bytes(text)
        cgroup = recycling.find_cgroup(proc)
        assert cgroup is not None
        assert cgroup.kills() == 3
    told = "\n".join(
        [*(f"x /{_octal(each)} fuse.x rw 0 0" for each in one.mounts), "y /data nfs4 rw 0 0"]
    )
    assert _find_mount("/data/jobs.db", told)[1] == "nfs4"


FUZZERS = [
    Fuzzer(
        "output of runners",
        st.builds(Written, st.lists(pieces, max_size=5), st.sets(st.sampled_from([1, 2, 99]))),
        output_is_told_apart,
        few=60,
    ),
    Fuzzer("stacks of runners", stacks, stacks_are_understood, few=60),
    Fuzzer("files of /proc", procs, proc_is_read, few=25),
]
