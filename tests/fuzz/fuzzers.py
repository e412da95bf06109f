"""All fuzzers, by the kind of content that a stranger can write."""

from __future__ import annotations

from tests.fuzz import (
    control_socket,
    evidence,
    frames,
    lock_files,
    lock_paths,
    messages,
    roles,
    rows,
    stored,
    texts,
    urls,
    web,
)
from tests.fuzz.kit import Fuzzer

MODULES = (
    rows,
    roles,
    frames,
    messages,
    lock_files,
    lock_paths,
    control_socket,
    urls,
    stored,
    texts,
    evidence,
    web,
)
FUZZERS: list[Fuzzer] = [one for module in MODULES for one in module.FUZZERS]
