"""Find flows, and the jobs of one: who waits for whom, what failed, what a retry would run again.

A flow has no row of its own. It is all jobs that can be reached from one of them, up and down,
through what they wait for and through children; a walk by two indexes finds them, up to a maximum.
``act_on_flow`` acts on the jobs that were found; nothing else here writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.base.text import count_of
from outlast.insight.acting import UNCHANGED, By, Refused, Verb, act_on_jobs
from outlast.insight.resource import SCHEMA, Document, Resource, document_type
from outlast.insight.sentences import list_some
from outlast.model.job import ENDED, State
from outlast.model.kinds import Time
from outlast.store.actions import LEFT
from outlast.store.columns import ID_MAX
from outlast.store.dependencies import FAILED
from outlast.store.inspector import ReadableStore
from outlast.store.rows import FlowLink, FlowMember, StoredJob
from outlast.store.values import Requeued, Wants

if TYPE_CHECKING:
    from outlast.store.protocol import Store

WALK_MAX = 100_000  # jobs of a flow that a command walks
LOOK_MAX = 5_000  # jobs that a page walks
LIST_MAX = 1_000  # jobs of each flow that a list walks
LISTED_MAX = 20 * LIST_MAX  # and in all
LINKS_A_JOB = 4  # rows that a walk reads for each job that it may find; each link is read twice
STEP = 500  # jobs whose links one statement reads
FLOWS_MAX = 200  # jobs of one look by which a list finds flows
SHOWN = 50  # jobs that are shown one by one
UPSTREAM_SHOWN = 20  # of what one of them waits for
NAMED_AFTER = 20  # jobs whose labels tell the name of a flow
_PHASES = ("queued", "waiting", "suspect", "retrying", "scheduled", *list(State)[1:])  # as shown
_WANTS = {Wants.COMPLETED: "completed", Wants.ENDED: "ended", Wants.DEAD: "dead"}


class FlowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a flow.

    Attributes:
        layer: 1 for a job that waits for none; else one more than the highest of those that it
            waits for, or of its parent.
        state, task, phase: None once its row is deleted. The phase is that of FlowMember.
        upstream: what it waits or waited for, in its order. ``parent``: whose child it is.
        retry: what a retry of the flow does with it: it ``runs`` again, or ``waits`` again for one
            that does; None: nothing.
    """

    id: int
    layer: int
    task: str | None = None
    state: State | None = None
    phase: str | None = None
    tenant: str | None = None
    enqueued_at: float | None = None
    upstream: list[FlowLink] = []
    parent: int | None = None
    retry: str | None = None


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it was read.

    Attributes:
        id: the lowest id of its jobs. name: the last label that its first jobs share.
        jobs: in the order of their layers and ids. is_cut: there are more.
    """

    id: int
    jobs: list[FlowJob]
    is_cut: bool
    name: str | None = None

    @property
    def states(self) -> dict[str, int]:
        """How many jobs are in each state; those whose rows are deleted do not count."""
        return _count(self.jobs)

    @property
    def has_ended(self) -> bool:
        """Whether none of its jobs is left to run; not so if there are others, not looked at."""
        return not self.is_cut and all(job.state is None or job.state in ENDED for job in self.jobs)

    @property
    def enqueued_at(self) -> Time | None:
        """When the first of its jobs was enqueued."""
        return min((job.enqueued_at for job in self.jobs if job.enqueued_at), default=None)

    @property
    def groups(self) -> dict[tuple[int, str], list[FlowJob]]:
        """Its jobs by layer and task, in the order of the layers."""
        found: dict[tuple[int, str], list[FlowJob]] = defaultdict(list)
        for job in self.jobs:
            found[job.layer, job.task or ""].append(job)
        return dict(found)

    def again(self, how: str) -> list[int]:
        """Return the jobs that a retry runs again (``runs``), or lets wait again (``waits``)."""
        return [job.id for job in self.jobs if job.retry == how]

    def unfinished(self) -> list[int]:
        """Return the jobs that a cancel ends or asks to stop, waiting jobs first."""
        left = (job for job in reversed(self.jobs) if job.state and job.state not in ENDED)
        return [job.id for job in left]

    def some(self, most: int = SHOWN) -> list[FlowJob]:
        """Return at most ``most`` of its jobs: dead ones for up to half of them, then the first."""
        if len(self.jobs) <= most:
            return self.jobs
        dead = {job.id for job in self.jobs if job.state is State.DEAD}
        kept = set(sorted(dead)[: most // 2])
        for job in self.jobs:
            if len(kept) >= most:
                break
            kept.add(job.id)
        return [job for job in self.jobs if job.id in kept]


class FlowList(msgspec.Struct, frozen=True):
    """Flows, unfinished ones first, then the newest. ``is_cut``: there may be others."""

    flows: list[FlowView]
    is_cut: bool


class _Walk(msgspec.Struct):
    """What a walk has found. ``met``: the flow of an earlier walk that this one has come upon."""

    ids: dict[int, None]
    links: dict[tuple[int, int], FlowLink]
    is_cut: bool = False
    met: int | None = None


async def read_flow(
    store: ReadableStore, job_id: int, most: int = WALK_MAX, tenant: str | None = None
) -> FlowView | None:
    """Return the flow of a job, at most the ``most`` jobs nearest to it; a job with no dependencies
    either way is a flow of one. ``tenant``: only jobs of this one. None: there is no such job."""
    flow = await _view(store, await _walk(store, job_id, most), tenant)
    mine = next((job for job in flow.jobs if job.id == job_id), None)
    is_there = mine is not None and (mine.state is not None or len(flow.jobs) > 1)
    return flow if is_there else None


async def list_flows(store: ReadableStore, limit: int = 20, tenant: str | None = None) -> FlowList:
    """Return recent flows, unfinished ones first: the flows of the newest blocked jobs, then the
    flows of the newest other jobs. Bounded: LIST_MAX jobs of each flow and LISTED_MAX in all are
    walked. If a flow is larger than that, flows with ids between its ids may be left out."""
    found: dict[int, FlowView] = {}
    flow_of: dict[int, int] = {}
    is_cut = False
    for blocked in (True, False):
        before = ID_MAX
        while not is_cut:
            seeds = await store.inspector.newest_flows(before, FLOWS_MAX, blocked=blocked)
            for seed in seeds:
                if seed in flow_of:
                    continue
                if len(found) >= limit or len(flow_of) >= LISTED_MAX:
                    is_cut = True
                    break
                walk = await _walk(store, seed, LIST_MAX, flow_of)
                mine = seed if walk.met is None else walk.met
                flow_of.update(dict.fromkeys(walk.ids, mine))
                if walk.met is None:
                    found[seed] = await _view(store, walk, tenant)
            if len(seeds) < FLOWS_MAX:
                break
            of = {flow_of[seed] for seed in seeds if seed in flow_of}
            before = min(seeds)
            if len(of) == 1:  # one flow fills the look: go on before its first job
                before = min(before, *(one for one, flow in flow_of.items() if flow in of))
    flows = [flow for flow in found.values() if flow.jobs]
    flows.sort(key=lambda flow: (flow.has_ended, -max(job.id for job in flow.jobs)))
    return FlowList(flows, is_cut)


async def _walk(
    store: ReadableStore, seed: int, most: int, known: Mapping[int, int] | None = None
) -> _Walk:
    """Find what is linked to a job, nearest first. ``known``: jobs of earlier walks, each with its
    flow; the walk ends where it meets one, since it is in a part that an earlier one has left out.
    """
    walk, read = _Walk({seed: None}, {}), 0
    waiting = [seed]
    while waiting and not walk.is_cut:
        part, waiting = waiting[:STEP], waiting[STEP:]
        left = LINKS_A_JOB * most - read
        links = await store.inspector.flow_links(part, left)
        read += len(links)
        walk.is_cut = len(links) >= left
        for link in links:
            walk.links[link.job_id, link.place] = link
            for job_id in (link.job_id, link.upstream_id):
                if job_id in walk.ids:
                    continue
                if known and job_id in known:
                    walk.met = known[job_id]
                    return walk
                if len(walk.ids) >= most:
                    walk.is_cut = True
                    break
                walk.ids[job_id] = None
                waiting.append(job_id)
    return walk


async def _view(store: ReadableStore, walk: _Walk, tenant: str | None) -> FlowView:
    ids = sorted(walk.ids)
    parts = [ids[first : first + STEP] for first in range(0, len(ids), STEP)]
    rows = [row for part in parts for row in await store.inspector.flow_members(part)]
    members = {row.id: row for row in rows if tenant in {None, row.tenant}}
    shown = set(members) if tenant is not None else walk.ids.keys()
    links = [
        each for each in walk.links.values() if each.job_id in shown and each.upstream_id in shown
    ]
    jobs = lay_out(shown, members, links)
    first = [job.id for job in jobs if job.task is not None][:NAMED_AFTER]
    name = _name(await store.inspector.jobs_of(first, 0))
    return FlowView(id=min(shown, default=0), jobs=jobs, is_cut=walk.is_cut, name=name)


def _name(rows: Sequence[StoredJob]) -> str | None:
    """Return the last label that all of these have: ``enqueue(flow, name=…)`` adds it."""
    if not rows:
        return None
    shared = set(rows[0].policy.labels).intersection(*(row.policy.labels for row in rows))
    return next((label for label in reversed(rows[0].policy.labels) if label in shared), None)


def lay_out(
    ids: Iterable[int], members: Mapping[int, FlowMember], links: Iterable[FlowLink]
) -> list[FlowJob]:
    """Return the jobs in their layers. Pure."""
    upstream: dict[int, list[FlowLink]] = defaultdict(list)
    parent: dict[int, int] = {}
    for link in sorted(links, key=lambda each: (each.job_id, each.place)):
        if link.place < 0:
            parent[link.upstream_id] = link.job_id
        else:
            upstream[link.job_id].append(link)
    layers = _layers(ids, upstream, parent)
    again: dict[int, str] = {}
    jobs = []
    for job_id in sorted(layers, key=lambda one: (layers[one], one)):
        row = members.get(job_id)
        if (how := _retry(row, upstream[job_id], parent.get(job_id), again)) is not None:
            again[job_id] = how
        seen: dict[str, Any] = {} if row is None else msgspec.structs.asdict(row)
        seen.pop("may_return", None)
        fields = {"upstream": upstream[job_id], "parent": parent.get(job_id), "retry": how}
        jobs.append(FlowJob(**{"id": job_id, **seen, "layer": layers[job_id], **fields}))
    return jobs


def _layers(
    ids: Iterable[int], upstream: Mapping[int, Sequence[FlowLink]], parent: Mapping[int, int]
) -> dict[int, int]:
    """Return the layer of each job. A job with a key may be a child of one that waits for it; what
    such a circle holds is in the layer after all others."""
    below: dict[int, list[int]] = defaultdict(list)
    missing: Counter[int] = Counter()
    for job_id in ids:
        above = [each.upstream_id for each in upstream.get(job_id, ())]
        above += [parent[job_id]] if job_id in parent else []
        for one in above:
            below[one].append(job_id)
        missing[job_id] = len(above)
    layers: dict[int, int] = {}
    ready, layer = [job_id for job_id, number in missing.items() if not number], 1
    while ready:
        layers.update(dict.fromkeys(ready, layer))
        after = []
        for job_id in ready:
            for one in below[job_id]:
                missing[one] -= 1
                if not missing[one]:
                    after.append(one)
        ready, layer = after, layer + 1
    return {job_id: layers.get(job_id, layer) for job_id in missing}


def _retry(
    row: FlowMember | None,
    upstream: Sequence[FlowLink],
    parent: int | None,
    again: Mapping[int, str],
) -> str | None:
    if row is None:
        return None
    if row.state is State.DEAD:
        return "runs"
    failed = [each.upstream_id for each in upstream if each.state == FAILED]
    returns = all(one in again for one in failed) if failed else parent in again
    return "waits" if row.may_return and returns else None


async def act_on_flow(store: Store, flow: FlowView, verb: Verb, by: By) -> dict[str, int]:
    """Cancel the unfinished jobs of a flow, or requeue its dead jobs: jobs that were cancelled
    because of them wait again. Return how many jobs were changed, by how. A job that has ended
    meanwhile, or is deleted, is left alone. Refused, once all is done, names jobs that cannot be
    requeued."""
    counts: Counter[str] = Counter()
    stuck: list[int] = []
    ids = flow.unfinished() if verb is Verb.CANCEL else flow.again("runs")
    async for answers in act_on_jobs(store, verb, ids, by):
        counts.update(str(one) for one in answers.values() if one and one not in LEFT)
        stuck += [job_id for job_id, one in answers.items() if one == Requeued.KEY_TAKEN]
    if stuck:
        raise Refused(
            f"{'job' if len(stuck) == 1 else 'jobs'} {list_some(list(map(str, stuck)))} "
            f"{UNCHANGED[Requeued.KEY_TAKEN]}; {count_of(counts['requeued'], 'job')} requeued"
        )
    return dict(counts)


def describe_states(flow: FlowView) -> str:
    """Return how many of its jobs are in each phase, in words; of a part, that it is one."""
    counts = Counter(job.phase for job in flow.jobs)
    told = [f"{counts[phase]:,} {phase}" for phase in _PHASES if counts[phase]]
    part = f"of {len(flow.jobs):,} looked at: " if flow.is_cut else ""
    return part + (", ".join(told) or "all deleted")


def describe_retry(flow: FlowView) -> str:
    """Return what a retry would do, in a sentence."""
    runs, waits = flow.again("runs"), flow.again("waits")
    if not runs:
        return "Nothing in it is dead: a retry would change nothing."
    again = f"A retry runs {count_of(len(runs), 'job')} again ({list_some(list(map(str, runs)))})"
    if not waits:
        return f"{again}."
    verb = "waits" if len(waits) == 1 else "wait"
    names = list_some(list(map(str, waits)))
    return f"{again}; {len(waits):,} of the cancelled {verb} again ({names})."


def _count(jobs: Iterable[FlowJob]) -> dict[str, int]:
    counts = Counter(job.state for job in jobs)
    return {state.value: counts[state] for state in State if counts[state]}


FLOW = Resource(
    "ListedFlow",
    FlowView,
    "id name jobs more states enqueued_at",
    jobs=(int, lambda flow: len(flow.jobs)),
    more=(bool, lambda flow: flow.is_cut),
)
MEMBER = Resource(
    "FlowMember",
    FlowJob,
    "id layer task state phase after after_count parent retry",
    after=(list[dict[str, Any]], lambda job: _list_upstream(job.upstream)),
    after_count=(int, lambda job: len(job.upstream)),
)


WHOLE_FLOW = {
    **FLOW.types,
    "layers": [
        document_type(
            "Layer", {"layer": int, "task": str | None, "jobs": int, "states": dict[str, int]}
        )
    ],
    "retry": dict[str, int],
    "members": [MEMBER],
    "members_left_out": int,
}
"""The types in the document of one flow."""


def _list_upstream(links: Sequence[FlowLink]) -> list[Document]:
    return [{"id": one.upstream_id, "wants": _WANTS[one.wants]} for one in links[:UPSTREAM_SHOWN]]


def flow_document(flow: FlowView, most: int = SHOWN) -> Document:
    """Return a flow for programs, with at most ``most`` of its jobs one by one."""
    jobs = flow.some(most)
    return {
        "schema": SCHEMA,
        **FLOW.document(flow),
        "layers": [
            {"layer": layer, "task": task or None, "jobs": len(found), "states": _count(found)}
            for (layer, task), found in flow.groups.items()
        ],
        "retry": {"runs": len(flow.again("runs")), "waits": len(flow.again("waits"))},
        "members": [MEMBER.document(job) for job in jobs],
        "members_left_out": len(flow.jobs) - len(jobs),
    }


def flows_document(found: FlowList) -> Document:
    """Return a list of flows for programs."""
    return {
        "schema": SCHEMA,
        "flows": [FLOW.document(each) for each in found.flows],
        "more": found.is_cut,
    }
