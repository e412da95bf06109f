"""Who is suspected when a runner dies with several attempts in it, and with whom each runs next.

Blame is certain only for an attempt that was alone in what died. Until then those that died
together are *suspects* of one *incident*, named by the lowest token among them. They run again in
*cohorts*, each alone in a runner: small groups one by one, larger ones in halves that are halved
again at the next death. So the deaths that it takes to find one culprit among n rise with log2(n).
A stack that names the attempt which was running when a fatal signal came is evidence enough to
suspect that one alone; it still dies alone before it is charged.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ONE_BY_ONE_MAX = 4  # suspects that run one by one; more are halved


class Suspicion(msgspec.Struct, frozen=True):
    """What an attempt is suspected of: its incident, and the cohort that it runs with next."""

    incident: int
    cohort: int


def suspicions(died: Mapping[int, int | None], named: int | None) -> dict[int, Suspicion]:
    """Return the suspects among attempts that died together; who is left out is none.

    Args:
        died: the token of each attempt -> the incident it was suspected of already, or None.
        named: the token that the evidence names, or None; one that has not died is not evidence.
    """
    known = [incident for incident in died.values() if incident is not None]
    if named is not None and named in died:
        return {named: Suspicion(died[named] or named, named)}
    if not died:
        return {}
    incident = min(known) if known else min(died)
    return {
        token: Suspicion(incident, cohort[0])
        for cohort in _cohorts(sorted(died))
        for token in cohort
    }


def _cohorts(tokens: list[int]) -> list[list[int]]:
    if len(tokens) <= ONE_BY_ONE_MAX:
        return [[token] for token in tokens]
    half = len(tokens) // 2
    return [tokens[:half], tokens[half:]]
