"""Find workers whose row marks them alive though they are dead: their lock file is free, as this
machine sees it or as the worker's tether has noted on the row.

The check is the same as a reaper's, and changes nothing: a command that only reads shows at once
what any live worker would act upon.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from outlast.insight.availability import holds
from outlast.model.lease import DeathCause
from outlast.store.lockfile import Probe, probe
from outlast.store.rows import WorkerRow


def with_proof(rows: Iterable[WorkerRow]) -> list[WorkerRow]:
    """Return the rows, with ``lock_free`` set on those of dead workers that are marked alive."""
    return [msgspec.structs.replace(row, lock_free=True) if _is_dead(row) else row for row in rows]


def _is_dead(row: WorkerRow) -> bool:
    if not holds(row) or row.lock_path is None:
        return False
    if row.cause == DeathCause.TETHER:
        return True
    return probe(row.lock_path, row.lock_device, row.lock_inode, row.boot_id) is Probe.FREE
