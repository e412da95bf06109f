"""Flows as people see them: found from any of their jobs, in layers, with what a retry would do."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.base.clock import SYSTEM
from outlast.insight import flows
from outlast.insight.acting import By, Verb
from outlast.insight.flows import FlowView, act_on_flow, flow_document, list_flows, read_flow
from outlast.insight.queries import read_details
from outlast.insight.why import why
from outlast.model.job import Policy
from outlast.store.protocol import Store
from outlast.store.values import NamedStep, Spawn, Wants
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.test_dependencies import DIES, after, drain, states

ME = By("ada")


async def found(store: Store, job_id: int, **bounds: Any) -> FlowView:
    flow = await read_flow(store, job_id, **bounds)
    assert flow is not None
    return flow


def layers_of(flow: FlowView) -> dict[int, int]:
    return {each.id: each.layer for each in flow.jobs}


async def test_a_flow_is_the_same_from_each_of_its_jobs(store: Store, hands: Hands) -> None:
    """Up, down, over a child and its own flow, and not into another flow."""
    first, second, last = await enqueued(store, job(), after(-1), after(-2))
    await enqueued(store, job(), after(-1))
    mine = await hands.claim_one()
    step = NamedStep(mine.job_id, mine.token, "spawn 0", "1")
    made = await store.spawn([job(), after(-1)], Spawn(step, 0))
    child, grown = (each.job_id for each in made)
    (joined,) = await enqueued(store, after(grown, wants=Wants.ENDED))
    wanted = {first: 1, second: 2, child: 2, last: 3, grown: 3, joined: 4}
    for job_id in wanted:
        flow = await found(store, job_id)
        assert (flow.id, layers_of(flow), flow.is_cut) == (first, wanted, False)
    parents = {each.id: each.parent for each in flow.jobs if each.parent}
    assert parents == {child: first, grown: first}
    assert await read_flow(store, joined + 1) is None


async def test_a_retry_does_what_was_foretold(store: Store, hands: Hands) -> None:
    ids = await enqueued(
        store,
        job(policy=DIES),
        job(),
        job(),
        after(-1),
        after(-4),
        after(-1, key="k"),
        after(-2, -5),
        after(-1, wants=Wants.DEAD),
        after(-1, -3),
    )
    dead, _, by_hand = ids[:3]
    await store.cancel([by_hand])
    await drain(hands, dead=[dead])
    flow = await found(store, ids[4])
    assert flow.again("runs") == [dead]
    waits = flow.again("waits")
    assert waits == [ids[3], ids[4], ids[6]]
    before = dict(zip(ids, await states(store, ids), strict=True))
    assert await act_on_flow(store, flow, Verb.REQUEUE, ME) == {"requeued": 1}
    while (await hands.exchange()).next_due == 0.0:
        pass
    now = dict(zip(ids, await states(store, ids), strict=True))
    assert now == before | {dead: "queued"} | dict.fromkeys(waits, "blocked")
    (note,) = await store.inspector.actions()
    assert (note.actor, note.verb, note.job_id) == ("ada", "requeue", dead)


async def test_a_cancel_ends_what_is_left(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, job(), job(), after(-1, -2), after(-3))
    mine = await hands.claim_one()
    flow = await found(store, ids[0])
    assert flow.unfinished() == [ids[3], ids[2], ids[1], mine.job_id]
    done = await act_on_flow(store, flow, Verb.CANCEL, ME)
    assert done == {"cancelled": 3, "requested": 1}
    assert await states(store, ids) == ["running", "cancelled", "cancelled", "cancelled"]
    assert (await found(store, ids[0])).unfinished() == [mine.job_id]


async def test_a_large_flow_is_summarized_and_a_walk_ends(store: Store, hands: Hands) -> None:
    count = 1_300
    ids = await enqueued(store, *[job(policy=DIES)] * count, after(*range(-count, 0)))
    (mine,) = await hands.claim(1)
    await hands.hand_in(crashed(mine))
    flow = await found(store, ids[5])
    assert (len(flow.jobs), flow.is_cut) == (count + 1, False)
    told = flow_document(flow, 10)
    assert [(one["layer"], one["jobs"]) for one in told["layers"]] == [(1, count), (2, 1)]
    assert told["layers"][0]["states"] == {"queued": count - 1, "dead": 1}
    assert (len(told["members"]), told["members_left_out"]) == (10, count - 9)
    cut = await found(store, ids[-1], most=100)
    assert (len(cut.jobs), cut.is_cut) == (100, True)
    assert ids[-1] in layers_of(cut)


async def test_a_blocked_job_says_how_many_it_waits_for(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[job()] * 30, after(*range(-30, 0)))
    await hands.hand_in(*[ended(one) for one in await hands.claim(4)])
    await hands.claim(1)  # which sees their ends
    details = await read_details(store, ids[-1], SYSTEM.wall())
    assert details is not None
    assert "and 23 others." in why(details).sentences[0]


async def test_the_list_has_unfinished_flows_first(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow of which only a part is walked is listed once."""
    monkeypatch.setattr(flows, "LIST_MAX", 20)
    monkeypatch.setattr(flows, "FLOWS_MAX", 10)
    named = Policy(labels=("a", "album"), keep=9e9)
    over = await enqueued(store, job(policy=named), after(-1, policy=named))
    assert await drain(hands) == over
    small = await enqueued(store, job(delay=3600), after(-1))
    wide = await enqueued(store, *[job(delay=3600)] * 30, *[after(n) for n in range(-30, 0)])
    await enqueued(store, after(*wide[30:]))
    listed = (await list_flows(store)).flows
    assert [(one.is_cut, one.has_ended) for one in listed] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert [job.id for job in listed[1].jobs] == small
    assert (listed[2].name, listed[2].states) == ("album", {"completed": 2})
    assert len((await list_flows(store, 1)).flows) == 1


async def test_a_user_of_one_tenant_sees_its_jobs_alone(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, job(tenant="acme"), after(-1), after(-2, tenant="acme"))
    flow = await found(store, ids[0], tenant="acme")
    assert [each.id for each in flow.jobs] == [ids[0], ids[2]]
    assert await read_flow(store, ids[1], tenant="acme") is None
    assert (await list_flows(store, tenant="none")).flows == []
