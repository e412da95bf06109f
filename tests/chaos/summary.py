"""The summary of a chaos run as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.chaos.run import Plan
from tests.chaos.story import last_events
from tests.chaos.verdict import Verdict

SHOWN = 30  # violations
LOG_EVENTS = (
    "worker_reaped",
    "lease_lost",
    "claim_reconciled",
    "attempt_superseded",
    "attempt_refused",
    "attempt_unheld",
    "attempt_overdue",
    "tether_restarted",
    "runner_died",
    "store_unavailable",
)


KINDS = {
    "LOST": "lost",
    "STALE END": "accepted stale ends",
    "STALE SAVE": "accepted stale saves",
    "DOUBLED": "doubled completions",
    "": "other violations",
}


def told(plan: Plan, verdict: Verdict) -> list[str]:
    """Return the summary, line by line."""
    jobs = sum(verdict.jobs.values())
    return [
        f"chaos on {plan.store}, seed {plan.seed}, {plan.seconds:g} s",
        (
            f"jobs: {jobs} ({listed(verdict.jobs)}), {verdict.accepted} promised,"
            f" {verdict.attempts} attempts begun"
        ),
        f"tasks: {listed(verdict.tasks)}",
        (
            f"faults: {sum(verdict.done.values())} ({listed(verdict.done)});"
            f" {verdict.phases['calm']} of {sum(verdict.phases.values())} phases calm;"
            f" {verdict.worker_starts} worker starts"
        ),
        *_left_out(plan),
        f"attempts closed: {listed(verdict.outcomes)}",
        "workers' logs: "
        + listed(
            Counter({name: verdict.events[name] for name in LOG_EVENTS if verdict.events[name]})
        ),
        (
            f"refused late writes: {sum(verdict.refused.values())} ({listed(verdict.refused)}),"
            f" up to {verdict.late_by:.1f} s late"
        ),
        f"done twice outside the store (allowed): {verdict.done_twice}",
        *(
            f"{each.event}: {each.number} attempts interrupted, closed after"
            f" {each.noticed:.1f} s (at most {each.noticed_max:.1f}), begun again after"
            f" {each.begun:.1f} s (at most {each.begun_max:.1f})"
            for each in verdict.recoveries
        ),
        *_of_the_database(plan, verdict),
        f"quiet: all terminal after {verdict.quiet_seconds:.1f} s",
        f"verify: {verdict.verified}",
        ", ".join(f"{what}: {_number(verdict, kind)}" for kind, what in KINDS.items()),
        *verdict.violations[:SHOWN],
    ]


def _left_out(plan: Plan) -> list[str]:
    """Return what could not be done here."""
    filled = plan.mounts or plan.store == "hosts"
    return [] if filled else ["the disk was not filled: that needs root"]


def _of_the_database(plan: Plan, verdict: Verdict) -> list[str]:
    """Return what its faults cost, where there are failovers."""
    if plan.store != "hosts":
        return []
    how = "asynchronous" if plan.asynchronous else "synchronous"
    lost = f"accepted jobs lost by the database itself: {verdict.lost_by_database}"
    return [
        *(
            f"{each.event}: {each.number} times, something accepted again after"
            f" {each.median:.1f} s (at most {each.longest:.1f})"
            for each in verdict.pauses
        ),
        f"{how} replication, {verdict.failovers} failovers, {lost}",
    ]


def how_to_go_on(plan: Plan, violations: Sequence[str] = ()) -> list[str]:
    """Return what is needed to understand a failure."""
    return [
        "the last events:",
        *last_events(plan.folder, violations[:SHOWN]),
        f"kept: {plan.folder}",
        f"again: {plan.command()}",
    ]


def _number(verdict: Verdict, kind: str) -> int:
    named = sum(each.startswith(kind) for each in verdict.violations)
    others = sum(not each.startswith(tuple(KINDS)[:-1]) for each in verdict.violations)
    return named if kind else others


def listed(counter: Counter[str]) -> str:
    """Return names and numbers, the most frequent first."""
    return ", ".join(f"{name} {number}" for name, number in counter.most_common()) or "none"
