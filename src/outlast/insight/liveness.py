"""What this machine knows of workers beyond their rows: a free lock file proves a death.

It is the same look as a reaper's, and it changes nothing: a command that only reads says at once
what any live worker on this host would act upon.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from outlast.insight.availability import holds
from outlast.store.lockfile import Probe, probe
from outlast.store.rows import WorkerRow


def with_proof(rows: Iterable[WorkerRow]) -> list[WorkerRow]:
    """Return the rows; ``lock_free`` is set of those that are dead though they say otherwise."""
    return [msgspec.structs.replace(row, lock_free=True) if _is_dead(row) else row for row in rows]


def _is_dead(row: WorkerRow) -> bool:
    if not holds(row) or row.lock_path is None:
        return False
    return probe(row.lock_path, row.lock_device, row.lock_inode, row.boot_id) is Probe.FREE
