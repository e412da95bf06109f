"""Chooses the suspects when a runner dies with several attempts, and the cohort each runs in next.

Blame is certain only for an attempt that was alone in the process that died. Until then the
attempts that died together are *suspects* of one *incident*, named by the lowest token among them.
They run again in *cohorts*, each alone in a runner: small groups one by one, larger ones in halves
that are halved again at the next death. So finding one culprit among n takes about log2(n) deaths.
A stack that names the attempt which was running when a fatal signal came is evidence enough to
suspect only that attempt; it is still not charged until it dies alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ONE_BY_ONE_MAX = 4  # suspects that run one by one; more are halved


class Suspicion(msgspec.Struct, frozen=True):
    """The incident that an attempt is suspected of, and the cohort that it runs with next."""

    incident: int
    cohort: int


def suspicions(died: Mapping[int, int | None], named: int | None) -> dict[int, Suspicion]:
    """Return the suspects among attempts that died together; the attempts left out are not
    suspects.

    Args:
        died: the token of each attempt -> the incident it was suspected of already, or None.
        named: the token that the evidence names, or None; a token that is not among the dead is
            ignored.
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
