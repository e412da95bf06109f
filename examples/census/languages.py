"""The language of a file by its name, and the lines of a file by its content.

The table is Pygments': some 850 names for 590 languages, kept by many hands, with names made
for people, and present already, since ``rich`` brings it (``identify`` loads faster, 2 ms
against 24 ms once per process, but knows a third of the names, answers with sets of tags
that need a table of names of our own, and would be one more dependency). Pygments' table
serves a highlighter, so ``_BY_SUFFIX`` and ``_BY_NAME`` settle names that several languages
claim, by what is most common, and ``_NAMES`` gives dialects the name of their language.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

OTHER = "Other"
"""What is text of no known language."""
SNIFF = 8000
"""A NUL byte among this many first bytes makes a file binary, as in git itself."""

_BY_SUFFIX = {
    "adoc": "AsciiDoc", "am": "Makefile", "as": "ActionScript", "asciidoc": "AsciiDoc",
    "asm": "Assembly", "astro": "Astro", "b": OTHER, "bas": "BASIC", "bzl": "Starlark",
    "c": "C", "cjs": "JavaScript", "cl": "OpenCL", "cp": "C++", "csv": "CSV",
    "cts": "TypeScript", "def": OTHER, "feature": "Gherkin", "frag": "GLSL", "fs": "F#",
    "g": "ANTLR", "g4": "ANTLR", "gd": "GDScript", "geojson": "JSON", "glsl": "GLSL",
    "h": "C", "hh": "C++", "i": "SWIG", "inc": OTHER, "inf": "INI", "inl": "C++",
    "ipynb": "Jupyter", "j": "Objective-J", "jsonc": "JSON", "l": "Lex", "lean": "Lean",
    "less": "Less", "ll": "LLVM", "m": "Objective-C", "m4": "M4", "mac": OTHER,
    "mdx": "Markdown", "metal": "Metal", "mi": OTHER, "mjs": "JavaScript",
    "mm": "Objective-C++", "mod": OTHER, "mts": "TypeScript", "n": OTHER, "p": OTHER,
    "perl": "Perl", "pl": "Perl", "pm": "Perl", "pro": OTHER, "proto": "Protocol Buffers",
    "r": "R", "rl": "Ragel", "S": "Assembly", "s": "Assembly", "sql": "SQL", "star": "Starlark",
    "svelte": "Svelte", "t": "Perl", "texi": "Texinfo", "texinfo": "Texinfo", "toc": OTHER,
    "tpp": "C++", "tst": OTHER, "tsv": "CSV", "u": OTHER, "v": "Verilog", "vert": "GLSL",
    "xsl": "XSLT", "xslt": "XSLT", "y": "Yacc", "yy": "Yacc", "ttl": "Turtle",
}  # fmt: skip
_BY_NAME = {
    "AUTHORS": "Text", "BUCK": "Starlark", "BUILD": "Starlark", "BUILD.bazel": "Starlark",
    "CHANGELOG": "Text", "COPYING": "Text", "Cargo.lock": "TOML", "ChangeLog": "Text",
    "Containerfile": "Dockerfile", "Gemfile.lock": OTHER, "INSTALL": "Text",
    "Jenkinsfile": "Groovy", "Justfile": "Just", "LICENSE": "Text", "NEWS": "Text",
    "NOTICE": "Text", "README": "Text", "WORKSPACE": "Starlark", "control": OTHER,
    "go.mod": "Go module", "go.sum": "Go module", "justfile": "Just", "uv.lock": "TOML",
}  # fmt: skip
_NAMES = {
    "ActionScript 3": "ActionScript", "Bash": "Shell", "Batchfile": "Batch",
    "Delphi": "Pascal", "Docker": "Dockerfile", "EmacsLisp": "Emacs Lisp", "Fish": "Shell",
    "FortranFixed": "Fortran", "GAS": "Assembly", "Gettext Catalog": "Gettext",
    "Groff": "Roff", "JSX": "JavaScript", "LessCss": "Less", "NASM": "Assembly",
    "Nimrod": "Nim", "Org Mode": "Org", "Perl6": "Raku", "Python 2.x": "Python",
    "Rocq Prover": "Rocq", "S": "R", "TASM": "Assembly", "TSX": "TypeScript", "Tcsh": "Shell",
    "Text only": "Text", "VB.net": "Visual Basic", "VimL": "Vim script",
    "aspx-cs": "ASP.NET", "aspx-vb": "ASP.NET", "ca65 assembler": "Assembly",
    "liquid": "Liquid", "systemverilog": "SystemVerilog", "verilog": "Verilog",
    "vhdl": "VHDL",
}  # fmt: skip


@lru_cache(maxsize=16_384)
def language_of(name: bytes) -> str:
    """The language of a file of this name (without directories), ``OTHER`` when unknown."""
    text = name.decode("utf-8", "replace")
    exact, suffixes, patterns = _table()
    if text in exact:
        return exact[text]
    for suffix in _suffixes(text):
        if suffix in suffixes:
            return suffixes[suffix]
    return next((language for pattern, language in patterns if pattern.match(text)), OTHER)


def count_lines(chunks: Iterable[bytes]) -> int | None:
    """Newlines in a content that comes in chunks, as ``wc -l`` counts; None for a binary file."""
    lines, sniffed = 0, 0
    for chunk in chunks:
        if sniffed < SNIFF:
            if 0 in chunk[: SNIFF - sniffed]:
                return None
            sniffed += len(chunk)
        lines += chunk.count(b"\n")
    return lines


def _suffixes(name: str) -> Iterator[str]:
    """``b.C`` and ``C``, each as it stands and in lower case, for ``a.b.C``."""
    parts = name.split(".")[-3:]
    for start in range(1, len(parts)):
        suffix = ".".join(parts[start:])
        yield suffix
        yield suffix.lower()


_Table = tuple[dict[str, str], dict[str, str], list[tuple[re.Pattern[str], str]]]


@lru_cache(maxsize=1)
def _table() -> _Table:
    """Pygments' names sorted into exact ones, suffixes, and the few that are true patterns."""
    from pygments.lexers import get_all_lexers  # type: ignore[import-untyped,unused-ignore]

    exact: dict[str, str] = {}
    suffixes: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str]] = []
    for lexer, _, names, _ in get_all_lexers(plugins=False):
        language = _NAMES.get(lexer, lexer)
        for name in names:
            if not re.search(r"[*?\[]", name):
                exact.setdefault(name, language)
            elif re.fullmatch(r"\*\.[^*?\[]+", name):
                suffixes.setdefault(name[2:], language)
            else:
                patterns.append((re.compile(fnmatch.translate(name)), language))
    return exact | _BY_NAME, suffixes | _BY_SUFFIX, patterns
