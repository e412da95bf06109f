"""Reads a store for people and screens, once for all stores.

The statements have the same names in all stores (``sql/TOPIC.sql``, or ``STORE/sql/TOPIC.sql``). A
store gives two ways to run them: ``_rows`` for one, ``_look`` for several in one snapshot. The few
reads that differ are methods of the store's own inspector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from outlast.base.text import line
from outlast.errors import SchemaMismatch
from outlast.model.job import State
from outlast.model.limits import Need, limits_of, needs_of
from outlast.model.pause import Pause
from outlast.store import statistics
from outlast.store.actions import LAST_ID, ActionRow
from outlast.store.columns import (
    ID_MAX,
    action_of,
    crash_of,
    find_malformed,
    finite,
    lacks_of,
    names_of,
    pause_of,
    policy_of,
    progress_of,
    seconds_of,
    stack_of,
    struct_of,
)
from outlast.store.limit_counts import count_limits, find_blocking, limit_of, read_limits
from outlast.store.limits import (
    LONG_LOCK_SECONDS,
    PERMITS_SHOWN,
    RUNNING_LOOKED_AT,
    WAITING_SHOWN,
    Forgotten,
    LimitRow,
    LockHolder,
    Miscounted,
    PermitRow,
    StreamPlace,
)
from outlast.store.listing import find, find_ids
from outlast.store.lockfile import directory_for, place_in
from outlast.store.minutes import (
    EVERY_MINUTE,
    MINUTES_MAX,
    TOTALS_MAX,
    Counted,
    Ended,
    MinuteFilter,
    Minutes,
    counted_of,
)
from outlast.store.rows import (
    CHILDREN_BYTES,
    CHOSEN,
    CIRCLE_MAX,
    DEAD_LOOKED_AT,
    GONE_MAX,
    GROUPS_MAX,
    HELD_MAX,
    HISTORY_PAGE,
    LOOK_BYTES,
    ROWS_LOOKED_AT,
    SUSPECTS_MAX,
    UPSTREAM_SHOWN,
    AttemptFilter,
    AttemptPast,
    AttemptRow,
    Cause,
    Child,
    DeadGroup,
    DeadGroups,
    DependencyRow,
    EndedAttempt,
    EndedAttempts,
    FlowLink,
    FlowMember,
    Held,
    HistoryPage,
    JobFilter,
    JobIds,
    JobPast,
    RefusalRow,
    Searched,
    StepRow,
    StoredJob,
    Suspect,
    Texts,
    Unresolved,
    WorkerRow,
    WorkerStatus,
)
from outlast.store.schedules import ScheduleRow
from outlast.store.statements import Row, Rows
from outlast.store.statistics import (
    LANES_MAX,
    NAMED_MAX,
    PLACE_MAX,
    STATISTICS_MAX,
    UNENCRYPTED_MAX,
    Place,
    Statistics,
    Unencrypted,
)
from outlast.store.values import Migration, Wants

if TYPE_CHECKING:
    from outlast.store.finding import Environment, NoWrites
    from outlast.store.logs import LogRow

T = TypeVar("T")


class Inspector(ABC):
    """Reads for people and screens. Never writes, takes no locks. In a sound store ``unresolved``,
    ``doubled``, ``miscounted`` and ``forgotten`` find nothing."""

    _file: Path | None = None
    """The file of the store; None: it is on a server."""

    # -- provided by a store

    @abstractmethod
    async def _rows(self, topic: str, name: str, /, **values: Any) -> list[Row]:
        """Return the rows of a statement, which uses the values that it names, and ``now`` in a
        store without a clock. A list is one value."""

    @abstractmethod
    async def _look(self, look: Callable[[Rows], Awaitable[T]]) -> T:
        """Return the result of ``look``, which runs several bounded statements in one snapshot, by
        its argument, which works as ``_rows`` does. It may be called again from its start, and
        awaits nothing else."""

    @abstractmethod
    async def _kind_of_list(self, rows: Rows, which: JobFilter, values: dict[str, Any]) -> str:
        """Return which statement of ``find_jobs.sql`` finds queued jobs, and add its parameters to
        the values."""

    @abstractmethod
    async def search(
        self, ids: Sequence[int], texts: Texts, size_max: int = LOOK_BYTES
    ) -> Searched:
        """Return which of these jobs hold all the texts, newest first: one is read, and more while
        their arguments have no more than ``size_max`` bytes in all."""

    @abstractmethod
    async def wanted(self, queue: str) -> int:
        """Return how many jobs of a queue run, or are due and more workers would take them; at most
        ``statistics.COUNT_MAX``. For autoscalers."""

    async def waiting(self, queue: str, most: int) -> int:
        """Return how many jobs of a queue are queued, up to ``most``."""
        return int((await self._rows("inspect", "waiting", queue=queue, most=most))[0]["number"])

    @abstractmethod
    async def environment(self) -> Environment:
        """Return facts about the server, or the file and disk. Works without a schema."""

    async def no_writes(self) -> NoWrites | None:
        """Return why the store stores nothing at present; None if it does."""
        return None

    # -- jobs

    async def job(self, job_id: int, text_max: int | None = None) -> StoredJob | None:
        """Return one job, its payloads cut at ``text_max`` characters."""
        rows = await self._jobs([job_id], text_max, whole=True)
        return _job(rows[0]) if rows else None

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> list[StoredJob]:
        """Return these jobs, newest first. ``text_max``: arguments are cut there, and results and
        checkpoints are left out."""
        return [_job(row) for row in await self._jobs(ids, text_max)]

    async def last_attempts(
        self, ids: Sequence[int], text_max: int | None = None
    ) -> list[tuple[StoredJob, AttemptRow | None]]:
        """Return jobs as ``jobs_of`` does, each with its last closed attempt, in one snapshot."""
        values = {"ids": list(ids), "text_max": text_max}

        async def look(rows: Rows) -> list[tuple[StoredJob, AttemptRow | None]]:
            ends = await rows("evidence", "last_ends", ids=list(ids), whole=True)
            last = {row["job_id"]: _attempt(row) for row in ends}
            found = await rows("inspect", "jobs_of", whole=False, **values)
            return [(_job(row), last.get(row["id"])) for row in found]

        return await self._look(look)

    async def _jobs(
        self, ids: Sequence[int], text_max: int | None, *, whole: bool = False
    ) -> list[Row]:
        values = {"ids": list(ids), "text_max": text_max, "whole": whole}
        return await self._rows("inspect", "jobs_of", **values)

    async def job_ids(self, which: JobFilter) -> JobIds:
        """Return ids of jobs, newest first; if no index helps, only those among the next rows."""
        return await self._look(lambda rows: find_ids(rows, which, self._kind_of_list))

    async def jobs(self, which: JobFilter) -> list[StoredJob]:
        """Return jobs, newest first, by as many looks as it takes."""
        return await self.jobs_of((await find(self.job_ids, which)).ids)

    async def named(self, token: int | None, key: str | None) -> list[int]:
        """Return ids by the token of an attempt (a completed one only if its lines are kept), or by
        the key of an unfinished job."""
        rows = await self._bounded("inspect", "named", token=token, key=key, limit=NAMED_MAX)
        return [row["id"] for row in rows]

    async def place(self, job_id: int) -> Place | None:
        """Return where a job stands among the others, in bounded numbers."""
        values = {"id": job_id, "most": PLACE_MAX, "named": NAMED_MAX}
        rows = await self._bounded("place", "place", **values)
        return _place(rows[0]) if rows else None

    async def counts(self) -> dict[tuple[str, State], int]:
        """Return the number of jobs by (queue, state)."""
        rows = await self._rows("inspect", "counts")
        return {(row["queue"], _state_of(row)): row["number"] for row in rows}

    async def statistics(self, most: int = STATISTICS_MAX, lanes: int = LANES_MAX) -> Statistics:
        """Return numbers about the store in one snapshot, each counted up to ``most``."""
        return await self._look(lambda rows: statistics.count(rows, most, lanes))

    async def unencrypted(self, most: int = UNENCRYPTED_MAX) -> list[Unencrypted]:
        """Return by task how many of ``most`` unfinished jobs have payloads in plain text. Running
        ones may have ended meanwhile."""
        rows = await self._bounded("inspect", "unencrypted", most=most)
        return [Unencrypted(**row) for row in rows]

    # -- attempts, and bad ends

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        """Return a job's closed attempts, in the order of their tokens."""
        return [_attempt(row) for row in await self._rows("inspect", "attempts", job_id=job_id)]

    async def logs(self, job_id: int) -> list[LogRow]:
        """Return the kept lines of a job's attempts, in the order of their tokens."""
        from outlast.store.logs import log_of

        rows = await self._rows("inspect", "logs", job_id=job_id)
        return [log_of(*row.values()) for row in rows]

    async def steps(self, job_id: int) -> list[StepRow]:
        """Return the steps of a job that are kept, in their order."""
        rows = await self._rows("inspect", "steps", job_id=job_id)
        return [StepRow(**finite(row)) for row in rows]

    async def dependencies(self, job_id: int, most: int = UPSTREAM_SHOWN) -> list[DependencyRow]:
        """Return the jobs that a job waits or waited for, at most ``most``, first the open
        and the failed ones."""
        rows = await self._rows("inspect", "dependencies", job_id=job_id, most=most)
        return [_dependency(row) for row in rows]

    async def children(self, job_id: int, first: int, last: int) -> list[Child]:
        """Return the children of a job with their whole results, from the n-th one, ``first``, to
        the ``last``, or fewer if these have many bytes, but at least one."""
        values = {"job_id": job_id, "first": first, "last": last, "bytes": CHILDREN_BYTES}
        rows = await self._rows("inspect", "children", **values)
        return [struct_of(Child, row) for row in rows]

    async def children_end(self, job_id: int) -> int:
        """Return the n of the last child of a job; 0: it has none."""
        (row,) = await self._rows("inspect", "children_end", job_id=job_id)
        return int(row["n"])

    async def waits_for_itself(self, job_id: int) -> bool:
        """Whether a job waits for itself, over any number of others, so none of them can run."""
        (row,) = await self._rows("inspect", "circle", job_id=job_id, most=CIRCLE_MAX)
        return bool(row["found"])

    async def returns(self, job_id: int) -> bool:
        """Whether a job that was cancelled because of others waits again soon, since they were
        requeued."""
        (row,) = await self._rows("inspect", "returns", job_id=job_id)
        return bool(row["found"])

    async def is_sent(self, job_id: int) -> bool:
        """Whether the event was sent that a job waits for."""
        (row,) = await self._rows("inspect", "sent", job_id=job_id)
        return bool(row["found"])

    async def newest_flows(self, before: int, most: int, *, blocked: bool) -> list[int]:
        """Return jobs by which flows are found, newest first, with ids below ``before``: blocked
        ones, or others with dependencies or children."""
        name = "blocked" if blocked else "waited"
        rows = await self._bounded("flows", name, before=before, most=most)
        return [row["id"] for row in rows]

    async def flow_links(self, ids: Sequence[int], most: int) -> list[FlowLink]:
        """Return what these jobs wait for, and what waits for them, at most ``most`` rows."""
        rows = await self._bounded("flows", "links", ids=list(ids), most=most)
        return [FlowLink(**row | {"wants": Wants(row["wants"])}) for row in rows]

    async def flow_members(self, ids: Sequence[int]) -> list[FlowMember]:
        """Return the jobs of these ids that exist."""
        rows = await self._bounded("flows", "members", ids=list(ids))
        return [struct_of(FlowMember, finite(row), state=_state_of(row)) for row in rows]

    async def unresolved(self, most: int = UPSTREAM_SHOWN) -> list[Unresolved]:
        """Return jobs whose state contradicts their dependencies."""
        rows = await self._rows("inspect", "unresolved", most=most)
        return [struct_of(Unresolved, row) for row in rows]

    async def doubled(self, most: int = UPSTREAM_SHOWN) -> list[tuple[int, int]]:
        """Return unfinished jobs with another one that has their key."""
        rows = await self._rows("inspect", "doubled", most=most)
        return [(row["job_id"], row["holder_id"]) for row in rows]

    async def refusals(
        self, job_id: int | None = None, limit: int = 50, before_id: int | None = None
    ) -> list[RefusalRow]:
        """Return refused writes, newest first; only ids below ``before_id``."""
        values = {"job_id": job_id, "limit": limit, "before_id": before_id}
        return [
            RefusalRow(**finite(row)) for row in await self._rows("inspect", "refusals", **values)
        ]

    async def last_token(self) -> int:
        """Return the last token that was issued, else 0."""
        return int((await self._rows("inspect", "token_last"))[0]["token"])

    async def dead_groups(self, which: JobFilter) -> DeadGroups:
        """Return groups of dead jobs: without a filter (queue, task, tenant) of the DEAD_LOOKED_AT
        newest, by their index alone; with one of the ROWS_LOOKED_AT newest."""
        among = {name: getattr(which, name) for name in CHOSEN}
        name, most = "dead_groups_among", ROWS_LOOKED_AT
        if all(one is None for one in among.values()):
            name, most = "dead_groups", DEAD_LOOKED_AT
        rows = await self._bounded("evidence", name, rows=most, groups=GROUPS_MAX + 1, **among)
        looked_at = rows[0]["looked_at"] if rows else 0
        return DeadGroups(
            groups=[struct_of(DeadGroup, finite(row)) for row in rows[:GROUPS_MAX]],
            looked_at=looked_at,
            full=looked_at >= most,
            more=len(rows) > GROUPS_MAX,
        )

    async def ended_attempts(self, which: AttemptFilter) -> EndedAttempts:
        """Return ended attempts, newest token first, of the next ROWS_LOOKED_AT."""
        values = msgspec.structs.asdict(which)
        values["before"] = ID_MAX if which.before is None else which.before

        async def look(rows: Rows) -> EndedAttempts:
            (floor,) = await rows(
                "evidence", "ended_floor", before=values["before"], rows=ROWS_LOOKED_AT
            )
            read = await rows("evidence", "ended", floor=floor["token"], **values)
            found = [EndedAttempt(**finite(row)) for row in read]
            if len(found) >= which.limit:
                last = found[-1]
                return EndedAttempts(rows=found, before=last.token, back_to=last.ended_at)
            before = floor["token"] if floor["number"] >= ROWS_LOOKED_AT else None
            return EndedAttempts(rows=found, before=before, back_to=finite(floor)["back_to"])

        return await self._look(look)

    async def last_ends(self, ids: Sequence[int]) -> list[EndedAttempt]:
        """Return the last ended attempt of each of these jobs, without facts of the job."""
        rows = await self._bounded("evidence", "last_ends", ids=list(ids), whole=False)
        return [struct_of(EndedAttempt, finite(row)) for row in rows]

    async def causes(self, tenant: str | None = None) -> list[Cause]:
        """Return how the ROWS_LOOKED_AT attempts with the newest tokens ended."""
        rows = await self._bounded("evidence", "causes", rows=ROWS_LOOKED_AT, tenant=tenant)
        return [Cause(**finite(row)) for row in rows]

    async def suspects(self) -> list[Suspect]:
        """Return the jobs of the newest shared deaths, at most SUSPECTS_MAX."""
        rows = await self._bounded("evidence", "suspects", rows=SUSPECTS_MAX)
        return [Suspect(**row) for row in rows]

    async def history(self, after_id: int = 0, limit: int = HISTORY_PAGE) -> HistoryPage:
        """Return a page of jobs with their closed attempts, in one snapshot."""

        async def look(rows: Rows) -> HistoryPage:
            found = await rows("inspect", "history_jobs", after=after_id, limit=limit)
            last = found[-1]["id"] if len(found) == limit else None
            attempts: dict[int, list[AttemptPast]] = defaultdict(list)
            for row in await rows("inspect", "history_attempts", after=after_id, last=last):
                attempts[row["job_id"]].append(struct_of(AttemptPast, row))
            (token,) = await rows("inspect", "token_last")
            jobs = [_past(row, attempts.pop(row["id"], [])) for row in found]
            strays = [attempt for left in attempts.values() for attempt in left]
            return HistoryPage(jobs=jobs, strays=strays, token_last=token["token"], next_after=last)

        return await self._look(look)

    # -- workers

    async def workers(self) -> list[WorkerRow]:
        """Return all live workers, and the GONE_MAX that have gone last, by id."""
        rows = await self._bounded("inspect", "workers", gone_max=GONE_MAX)
        locks = directory_for(self._file) if rows else Path()
        return [_worker(row, locks) for row in rows]

    async def held(self, limit: int = HELD_MAX) -> list[Held]:
        """Return running jobs by worker, at most ``limit``."""
        rows = await self._rows("inspect", "held", limit=limit)
        told = [progress_of(row["progress"]) for row in rows]
        return [
            Held(row["job_id"], row["worker_id"], None if progress is None else progress.waits_for)
            for row, progress in zip(rows, told, strict=True)
        ]

    # -- acts of people, pauses and schedules

    async def actions(
        self, limit: int = 50, before_id: int = LAST_ID, job_id: int | None = None
    ) -> list[ActionRow]:
        """Return acts of people, newest first, on this job or on anything."""
        values = {"limit": limit, "before_id": before_id, "job_id": job_id}
        return [action_of(row) for row in await self._rows("actions", "show", **values)]

    async def running_actions(self, limit: int = 50) -> list[ActionRow]:
        """Return bulk actions that are under way, the oldest first."""
        return [action_of(row) for row in await self._rows("actions", "show_running", limit=limit)]

    async def pauses(self) -> list[Pause]:
        """Return all pauses, by id."""
        return [pause_of(tuple(row.values())) for row in await self._rows("pauses", "pauses")]

    async def schedules(self, limit: int = 1_000, after: str = "") -> list[ScheduleRow]:
        """Return schedules by name, those after ``after``."""
        rows = await self._rows("schedules", "show", after=after, name=None, limit=limit)
        return [struct_of(ScheduleRow, row) for row in rows]

    async def schedule(self, name: str) -> ScheduleRow | None:
        """Return one schedule."""
        after = name[:-1]  # the walk by name then begins right before it
        rows = await self._rows("schedules", "show", after=after, name=name, limit=1)
        return struct_of(ScheduleRow, rows[0]) if rows else None

    # -- limits

    async def limits(self) -> list[LimitRow]:
        """Return limits by name, with bounded numbers of what runs and waits under each."""
        return await self._look(lambda rows: count_limits(rows, STATISTICS_MAX))

    async def limit(self, name: str) -> LimitRow | None:
        """Return one limit, as ``limits`` does."""
        found = await self._look(lambda rows: count_limits(rows, STATISTICS_MAX, name))
        return found[0] if found else None

    async def permits(self, name: str, most: int = PERMITS_SHOWN) -> list[PermitRow]:
        """Return permits of a limit, most running attempts first; of more than ``most``, permits
        in use or waited for, as far as bounded looks find them, before others."""
        return await self._look(lambda rows: _permits(rows, name, most))

    async def stream_place(self, job_id: int, most: int = PLACE_MAX) -> StreamPlace | None:
        """Return where a queued job stands in its stream, in numbers up to ``most``; None: it does
        not wait in one now."""
        return await self._look(lambda rows: _stream_place(rows, job_id, most))

    async def lock_holders(
        self, *, of_counters: bool = True, longer_than: float = LONG_LOCK_SECONDS
    ) -> list[LockHolder]:
        """Return other sessions of the server whose locks stop limits, or counters: at once if
        workers may not have their role, else after these seconds."""
        return []

    async def miscounted(self, most: int = PERMITS_SHOWN) -> list[Miscounted]:
        """Return permits with a wrong count of running attempts."""
        rows = await self._rows("limits", "miscounted", most=most)
        return [struct_of(Miscounted, row) for row in rows]

    async def forgotten(self, most: int = PERMITS_SHOWN) -> list[Forgotten]:
        """Return streams with due jobs at which no worker would look."""
        rows = await self._rows("limits", "forgotten", most=most)
        return [struct_of(Forgotten, row) for row in rows]

    # -- counters, and the time

    async def minutes(
        self, seconds: float, most: int = MINUTES_MAX, which: MinuteFilter = EVERY_MINUTE
    ) -> Minutes:
        """Return the attempts counted in the last ``seconds``, by outcome; of more than ``most``
        rows, the newest."""
        values = {"seconds": seconds, "most": most, **msgspec.structs.asdict(which)}
        rows = await self._bounded("minutes", "minutes", **values)
        ended = [_ended(row) for row in rows if row["outcome"] is not None]
        now, read, oldest = (rows[0][name] for name in ("now", "read", "oldest"))
        return Minutes(now=now, oldest=oldest, is_cut=read >= most, ended=ended)

    async def totals(self, most: int = TOTALS_MAX) -> list[Counted]:
        """Return all counts since the store was made, by kind, queue, task and outcome. They only
        rise, if something is added within TOTAL_SECONDS."""
        return [counted_of(row) for row in await self._rows("minutes", "totals", most=most)]

    async def now(self) -> float:
        """Return the time of the store's clock, in seconds since 1970."""
        return float((await self._rows("inspect", "now"))[0]["now"])

    async def _bounded(self, topic: str, name: str, /, **values: Any) -> list[Row]:
        return await self._look(lambda rows: rows(topic, name, **values))


class ReadableStore(Protocol):
    """A store as those see it who only read."""

    url: str
    inspector: Inspector

    async def open(self, *, make: bool = True) -> None:
        """Connect and check the schema; if there is none at all, make it first, or raise
        SchemaMismatch if not ``make``."""
        ...

    async def close(self) -> None:
        """Release connections. Safe to call twice."""
        ...

    async def store_id(self) -> str:
        """Return the id of this Outlast schema, drawn once when it was made."""
        ...

    async def migrations(self) -> list[Migration]:
        """Return all steps, applied or not. Does not change or create anything."""
        ...


def _job(row: Row) -> StoredJob:
    return struct_of(
        StoredJob,
        row,
        malformed=find_malformed(row),
        state=_state_of(row),
        policy=policy_of(row["policy"]),
        progress=progress_of(row["progress"]),
        stack=stack_of(row["stack"]),
        limits=limits_of(row["limits"]),
    )


def _attempt(row: Row) -> AttemptRow:
    return struct_of(
        AttemptRow,
        finite(row),
        malformed=find_malformed(row),
        progress=progress_of(row["progress"]),
        crash=crash_of(row["crash"]),
    )


def _past(row: Row, attempts: list[AttemptPast]) -> JobPast:
    status = row["worker_status"]
    return struct_of(
        JobPast,
        row,
        state=_state_of(row),
        policy=policy_of(row["policy"]),
        worker_status=None if status is None else WorkerStatus(status),
        attempts=attempts,
    )


def _worker(row: Row, locks: Path) -> WorkerRow:
    return struct_of(
        WorkerRow,
        row,
        malformed=find_malformed(row),
        heartbeat=seconds_of(row["heartbeat"]),
        lease=seconds_of(row["lease"]),
        status=WorkerStatus(row["status"]),
        queues=names_of(row["queues"]),
        tasks=names_of(row["tasks"]),
        tags=names_of(row["tags"]),
        lacks=lacks_of(row["lacks"]),
        lock_path=place_in(locks, row["lock_path"]),
    )


async def _permits(rows: Rows, name: str, most: int) -> list[PermitRow]:
    blocking, _ = await find_blocking(rows)
    values = {
        "name": name,
        "most": most,
        "blocking": blocking.get(name, []),
        "rows": RUNNING_LOOKED_AT,
        "waiting": WAITING_SHOWN,
    }
    return [struct_of(PermitRow, row) for row in await rows("limits", "permits", **values)]


def _dependency(row: Row) -> DependencyRow:
    state = row["state"]
    known = State(state) if state in set(State) else None
    return struct_of(DependencyRow, row, wants=Wants(row["wants"]), state=known)


async def _stream_place(rows: Rows, job_id: int, most: int) -> StreamPlace | None:
    found = await rows("limits", "stream_place", id=job_id, most=most)
    if not found:
        return None
    place, first = struct_of(StreamPlace, found[0]), found[0]["blocked"]
    if first is None or place.holder is not None:
        return place
    needs = {need.permit: need for need in needs_of(found[0]["needs"])}
    permits = [first, *(permit for permit in needs if permit != first)]
    blocks = [await _block(rows, place, permit, needs.get(permit)) for permit in permits]
    return msgspec.structs.replace(blocks[0], others=blocks[1:])


async def _block(rows: Rows, place: StreamPlace, permit: int, need: Need | None) -> StreamPlace:
    """Return what of this permit holds a place back."""
    found = await rows("limits", "permit", permit=permit)
    name = found[0]["name"] if found else need.name if need else ""
    limits = await read_limits(rows, name)
    limit = limit_of(limits[0]) if limits else None
    unused = {"id": permit, "name": name, "key": need.key if need else "", "used": 0}
    row = struct_of(PermitRow, found[0] if found else unused | {"running": limit and limit.running})
    holders = await rows("limits", "holders", permit=permit, most=NAMED_MAX)
    throttled = await rows("limits", "throttled_by", permit=permit, until=row.held_until)
    return msgspec.structs.replace(
        place,
        blocked_by=row,
        limit=limit,
        cost=need.cost if need else 1.0,
        holders=[(row["id"], row["worker"], row["seconds"]) for row in holders],
        throttled_by=throttled[0]["id"] if throttled else None,
    )


def _place(row: Row) -> Place:
    return struct_of(Place, row, incident=msgspec.json.decode(row["incident"]))


def _ended(row: Row) -> Ended:
    names, lists = Ended.__struct_fields__[:3], Ended.__struct_fields__[3:]
    return Ended(
        *[row[name] for name in names], *[msgspec.json.decode(row[name]) for name in lists]
    )


def _state_of(row: Row) -> State:
    """Return the state in a row. SchemaMismatch for one that only a newer release knows."""
    try:
        return State(row["state"])
    except ValueError:
        raise SchemaMismatch(
            f"a job has the state {line(row['state'], 60)!r}, which this release does not know: use"
            " the newer one that wrote it, or restore a backup"
        ) from None
