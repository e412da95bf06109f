"""Turns the exit of a runner into the end of each attempt that ran in it.

``model/lifecycle.py`` has the rules of blame. An attempt whose runner the worker killed because of
it ends with the reason of the kill, and its neighbours are released. A runner ignores the signals
that ask a process to end. If its user code re-enabled them and one of them ended it, or if the
application's lifespan has failed, no attempt is charged, and each counts a loss; during a drain
that costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.model.crash import LIMITS, Crash, CrashKind
from outlast.model.lifecycle import Outcome, OutcomeKind, find_suspects
from outlast.runner.stacks import current_attempt
from outlast.worker.base import Running
from outlast.worker.runners.process import Death
from outlast.worker.runners.recycling import MAX_RSS, describe
from outlast.worker.runners.responsiveness import UNANSWERED
from outlast.worker.runners.supervisor import LIFESPAN

# reasons of a kill: an attempt is no longer current; a transaction in it keeps the file locked
SUPERSEDED, LOCKS_FILE = "superseded", "locks_file"
_DEAF = "it did not stop when asked"
_ASKED_TO_END = {"SIGTERM", "SIGINT", "SIGHUP"}
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"}  # raised by the running code
# kills that the attempt caused (None: no kill)
_OWN_DOING = {None, "bad_frame", MAX_RSS, LOCKS_FILE}


def outcome_of(
    running: Running,
    death: Death,
    neighbours: list[int],
    *,
    incident: int | None = None,
    killed_for: str | None,
    trusted: bool,
    draining: bool,
) -> Outcome:
    """Return how an attempt ended whose runner died in this way."""
    if killed_for == "lease_lost" or not trusted:
        return make_crash(CrashKind.LOST_LEASE, "the worker's lease ended", death, neighbours)
    if running.stop_reason is not None and killed_for is not None:
        return outcome_of_stop(running, death, neighbours)
    if killed_for == UNANSWERED:
        return make_crash(CrashKind.BYSTANDER, "its runner did not answer", death, neighbours)
    if killed_for == LIFESPAN and not draining:
        how = "the application's lifespan has failed in its runner"
        return make_crash(CrashKind.BYSTANDER, how, death, neighbours)
    if killed_for not in _OWN_DOING or (draining and death.signal and not death.memory):
        return Outcome(kind=OutcomeKind.RELEASED, message=f"its runner was ended ({killed_for})")
    how = f"died of {death.signal}" if death.signal else f"exited with {death.exit_code}"
    if death.signal is None and death.exit_code is None:
        how = "ended, and its exit status is not known"
    if death.complaint:
        how = f"was killed: it sent {death.complaint}"
    if killed_for == LOCKS_FILE:
        how = "was killed: a transaction in it kept the file of the store locked"
    if death.memory:
        how = f"{how} {describe(death.memory)}"
    if neighbours or (death.signal in _ASKED_TO_END and killed_for is None):
        ended = make_crash(CrashKind.BYSTANDER, f"its runner {how}", death, neighbours)
        return msgspec.structs.replace(ended, incident=incident)
    kind = CrashKind.SIGNALLED if death.signal and not death.complaint else CrashKind.EXITED
    kind = CrashKind.OUT_OF_MEMORY if death.memory else kind
    return make_crash(kind, f"the runner {how}", death, neighbours)


def suspects_of(attempts: Sequence[Running], death: Death) -> dict[int, int]:
    """Return the suspects of a runner's death -> the incident. The stack of the current thread is
    evidence if a fault raised the signal. A request from outside creates no new suspect."""
    if death.signal in _ASKED_TO_END:
        claims = [running.claimed for running in attempts]
        return {one.token: one.incident for one in claims if one.incident is not None}
    named = current_attempt(death.stacks) if death.signal in _FAULTS else None
    return find_suspects({each.token: each.claimed.incident for each in attempts}, named)


def outcome_of_stop(running: Running, death: Death | None, neighbours: list[int]) -> Outcome:
    """Return the end of an attempt that was asked to stop and had to be killed."""
    reason = running.stop_reason or "drain"
    if reason in LIMITS:
        policy, kind = running.claimed.policy, CrashKind(reason)
        limit, words = {
            CrashKind.TIMEOUT: (policy.timeout, _DEAF),
            CrashKind.STALLED: (policy.stall_timeout, _DEAF),
            CrashKind.UNRESPONSIVE: (policy.unresponsive_timeout, "it blocked its runner's loop"),
        }[kind]
        over = "" if limit is None else f"above its limit of {limit:g} s; "
        return make_crash(kind, f"{over}{words}", death, neighbours)
    if reason == "lease_lost":
        return make_crash(CrashKind.LOST_LEASE, "it was closed elsewhere", death, neighbours)
    if reason == "cancel":
        killed = make_crash(CrashKind.SIGNALLED, _DEAF, death, neighbours)
        return msgspec.structs.replace(killed, kind=OutcomeKind.CANCELLED)
    if reason == "pause":
        return Outcome(kind=OutcomeKind.RELEASED, message="it was paused, and did not stop")
    if reason == "blocked":
        words = "other attempts kept it from running for too long, and it did not stop"
        return Outcome(kind=OutcomeKind.RELEASED, message=words)
    return Outcome(kind=OutcomeKind.RELEASED, message="the worker stopped")


def make_crash(
    kind: CrashKind, message: str, death: Death | None = None, neighbours: list[int] | None = None
) -> Outcome:
    """Return a crashed outcome with the evidence of the process's death."""
    crash = Crash(kind=kind, message=message)
    if death is not None:
        crash = msgspec.structs.replace(
            crash,
            exit_code=death.exit_code,
            signal=death.signal,
            rss_peak_bytes=death.rss_peak_bytes,
            cpu_seconds=death.cpu_seconds,
            memory=death.memory,
            stacks=death.stacks or None,
            output=death.output,
            neighbours=neighbours or [],
        )
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=message)
