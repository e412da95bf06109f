"""A few examples of each fuzzer, always the same ones; ``make fuzz`` has more."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzzers import FUZZERS
from tests.fuzz.kit import PEAK_MAX, Fuzzer, begin_peak, peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda one: one.name.replace(" ", "-"))
def test_content_of_strangers_does_no_harm(fuzzer: Fuzzer, request: pytest.FixtureRequest) -> None:
    more = [request.getfixturevalue("pg_url")] if fuzzer.database else []
    begin_peak()
    before = peak_bytes()
    assert fuzzer.run(1, fuzzer.few, *more) >= fuzzer.few / 2
    assert peak_bytes() - before < PEAK_MAX
