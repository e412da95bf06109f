"""The language of a file by its name, and its lines by its content."""

from __future__ import annotations

import subprocess
import sys

from examples.census.languages import OTHER, SNIFF, count_lines, language_of
from tests.cases import each_case


@each_case(
    ("name", "language"),
    [
        ("a.py", "Python"),
        ("SConstruct", "Python"),
        ("a.PY", "Python"),
        ("a.c", "C"),
        ("a.h", "C"),
        ("a.C", "C++"),
        ("a.mjs", "JavaScript"),
        ("a.jsx", "JavaScript"),
        ("a.min.js", "JavaScript"),
        ("a.d.ts", "TypeScript"),
        ("go.mod", "Go module"),
        ("Cargo.lock", "TOML"),
        ("t0001.t", "Perl"),
        (".bashrc", "Shell"),
        ("a.s", "Assembly"),
        ("a.S", "Assembly"),
        ("a.R", "R"),
        ("README", "Text"),
        ("git.1", "Roff"),
        ("Makefile.linux", "Makefile"),
        ("a.html.j2", "HTML+Django/Jinja"),
        ("a.xyzzy", OTHER),
        ("noextension", OTHER),
        (".gitignore", OTHER),
        ("", OTHER),
        (".", OTHER),
        ("..py.", OTHER),
    ],
)
def test_a_name_tells_the_language(name, language):
    assert language_of(name.encode()) == language


def test_a_name_in_no_known_encoding_still_has_a_suffix():
    assert language_of(b"caf\xe9.py") == "Python"
    assert language_of(b"\xff\xfe") == OTHER
    assert language_of("日本語.rs".encode()) == "Rust"


@each_case(
    ("chunks", "lines"),
    [
        ([], 0),
        ([b""], 0),
        ([b"a"], 0),
        ([b"a\n"], 1),
        ([b"a\nb"], 1),
        ([b"a\r\nb\r\n"], 2),
        ([b"a\n", b"b\n", b"\n"], 3),
        ([b"caf\xe9\n"], 1),
        ([b"\0"], None),
        ([b"a\n", b"b\0"], None),
        ([b"a" * (SNIFF - 1) + b"\0"], None),
        ([b"a" * (SNIFF - 1), b"\0"], None),
        ([b"a" * SNIFF + b"\0\n"], 1),
        ([b"a" * SNIFF, b"\0\n"], 1),
        ([b"a" * (SNIFF + 5), b"\0\n"], 1),
    ],
)
def test_lines_are_newlines_and_a_nul_near_the_start_means_binary(chunks, lines):
    assert count_lines(iter(chunks)) == lines


def test_a_binary_file_is_not_read_to_its_end():
    chunks = iter([b"\x7fELF\0", b"more"])
    assert count_lines(chunks) is None
    assert next(chunks) == b"more"


def test_the_table_is_loaded_only_when_a_name_is_asked_for():
    program = (
        "import sys, examples.census.languages as l\n"
        "assert 'pygments' not in sys.modules\n"
        "assert l.language_of(b'a.py') == 'Python'\n"
        "assert 'pygments.lexers.python' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
