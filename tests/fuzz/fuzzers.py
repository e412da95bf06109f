"""All fuzzers, by the kind of content that a stranger can write."""

from __future__ import annotations

from tests.fuzz import (
    control_socket,
    evidence,
    frames,
    lock_files,
    messages,
    rows,
    stored,
    texts,
    urls,
)
from tests.fuzz.kit import Fuzzer

MODULES = (rows, frames, messages, lock_files, control_socket, urls, stored, texts, evidence)
FUZZERS: list[Fuzzer] = [one for module in MODULES for one in module.FUZZERS]
