"""The API: the documents of the command line, acts that are recorded, refusals that say why."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from outlast.insight import bulk
from outlast.insight.documents import job_document, workers_document
from outlast.insight.queries import list_workers
from outlast.model.job import Policy, State
from outlast.model.pause import PauseKind
from outlast.store.values import NewPause
from outlast.web.api import ROUTES
from outlast.web.api.route import describe_api
from tests.conformance.kit import Hands, crashed, enqueued, job
from tests.conformance.schedules_kit import put_one
from tests.conformance.test_bulk import deaths, ids_in, ordered
from tests.web.kit import Page, let_in, page_on

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import pytest

    from outlast.store.actions import ActionRow
    from outlast.store.protocol import Store

API = "/api/v1"
SAME = {"sec-fetch-site": "none"}  # as a program says it


async def read(page: Page, path: str, **query: Any) -> Any:
    answer = await page.get(f"{API}{path}", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def send(page: Page, path: str, **fields: Any) -> httpx.Response:
    return await page.post(f"{API}{path}", json=fields, headers=SAME)


async def refused(answer: httpx.Response, status: int, *words: str) -> None:
    """Check that an answer says in JSON why not."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["status"] == status
    for word in words:
        assert word in error["message"], error


async def only(store: Store) -> ActionRow:
    (row,) = await store.inspector.actions()
    return row


@pytest.mark.on_both_stores
async def test_documents_are_those_of_the_command_line(store: Store) -> None:
    (number,) = await enqueued(
        store, job(args='{"big":9007199254740993}', policy=Policy(retries=0))
    )
    hands = await Hands.on(store)
    await hands.hand_in(crashed(await hands.claim_one()))
    look = store.inspector
    row = await look.job(number)
    assert row is not None
    async with page_on(store.url) as page:
        expected = job_document(row, await look.attempts(number))
        shown = await read(page, f"/jobs/{number}")
        assert shown == json.loads(json.dumps(expected | {"hidden": []}))
        assert shown["args"]["big"] == 9007199254740993
        attempts = await read(page, f"/jobs/{number}/attempts")
        assert attempts["attempts"] == shown["attempts"]
        assert (await read(page, f"/jobs/{number}/why"))["position"] == "dead"
        (listed,) = (await read(page, "/jobs", state="dead"))["jobs"]
        assert listed["id"] == number
        raw = await page.get(f"{API}/jobs/{number}/args")
        assert raw.text == '{"big":9007199254740993}'
        workers = await list_workers(store)
        names = set(workers_document(workers.rows)["workers"][0])
        assert set((await read(page, "/workers"))["workers"][0]) == names
        assert (await read(page, "/stats"))["queues"][0]["dead"] == 1
        assert (await read(page, "/dead/groups"))["groups"][0]["number"] == 1
        assert (await read(page, "/deaths"))["deaths"][0]["job_id"] == number
        assert (await read(page, "/scale", queue="default"))["wanted"] == 0
        assert (await read(page, "/history", seconds=600, by="task"))["step"] == 60


async def test_lists_are_paged_and_never_hold_long_payloads(store: Store) -> None:
    ids = await enqueued(store, *[job(args=json.dumps({"text": "x" * 5_000}))] * 3)
    async with page_on(store.url) as page:
        first = await read(page, "/jobs", limit=2)
        assert [one["id"] for one in first["jobs"]] == ids[:0:-1]
        assert (first["jobs"][0]["args"], len(first["jobs"][0]["args_head"])) == (None, 200)
        rest = await read(page, "/jobs", limit=2, before=first["next_before"])
        assert ([one["id"] for one in rest["jobs"]], rest["next_before"]) == ([ids[0]], None)


async def test_each_address_says_which_method_it_takes(store: Store) -> None:
    """To each other one, whether what it names exists or not."""
    await enqueued(store)
    named = {"name:path": "a/b", "name:str": "args"}
    async with page_on(store.url) as page:
        for route in ROUTES:
            path = re.sub(r"{(.*?)}", lambda found: named.get(found[1], "1"), route.path)
            takes = ["POST"] if route.method == "POST" else ["GET", "HEAD"]
            for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} - {*takes}:
                other = await page.request(method, path, headers=SAME)
                assert (other.status_code, other.headers.get("allow")) == (405, ", ".join(takes))
                if method != "HEAD":
                    await refused(other, 405, f"{path} takes {', '.join(takes)}.")


async def test_an_odd_address_is_refused_in_json(store: Store) -> None:
    async with page_on(store.url) as page:
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            missing = await page.request(method, f"{API}/nothing", headers=SAME)
            await refused(missing, 404, "see openapi.json")
            for odd in ("/a%0Ab", "/jobs/%0A/why"):
                await refused(await page.request(method, API + odd, headers=SAME), 404)
        shown = await page.get("/a%0Ab")
        assert (shown.status_code, "No such page" in shown.text) == (404, True)


async def test_a_parameter_that_does_not_exist_is_refused(store: Store) -> None:
    async with page_on(store.url) as page:
        await refused(await page.get(f"{API}/jobs?stat=dead"), 400, "'stat' (here: state)")
        await refused(await page.get(f"{API}/stats?queue=mail"), 400, "no parameter 'queue'")
        sent = await page.post(f"{API}/bulk?verb=cancel", content=b"{}", headers=SAME)
        await refused(sent, 400, "no parameter 'verb'")


async def test_what_is_wrong_is_said_in_json(store: Store) -> None:
    (number,) = await enqueued(store)
    async with page_on(store.url) as page:
        await refused(await page.get(f"{API}/jobs/99"), 404, "no job 99")
        await refused(
            await page.get(f"{API}/jobs?state=odd"),
            400,
            "state: 'odd' is not a state or phase; write one of queued",
        )
        await refused(await page.get(f"{API}/jobs?limit=9999"), 400, "limit=")
        await refused(await page.get(f"{API}/scale"), 400, "Which queue?")
        path = f"/jobs/{number}/cancel"
        await refused(await send(page, path, tokn=5), 400, "tokn")
        await refused(await send(page, path, token="5"), 400, "token")
        await refused(await send(page, path, token=10**20), 400, "token")
        whole = await send(page, path, token=10.0**6)  # as JSON has one kind of number
        await refused(whole, 409)
        odd = await page.post(f"{API}{path}", content=b"{", headers=SAME)
        await refused(odd, 400, "openapi.json")
        large = await page.post(f"{API}{path}", content=b"x" * 70_000, headers=SAME)
        await refused(large, 413)
        await refused(await page.post(f"{API}{path}"), 403, "Sec-Fetch-Site")
        evil = {"host": "evil.example"}
        await refused(await page.get(f"{API}/jobs", headers=evil), 421, "not answer to the name")
    assert await store.inspector.actions() == []
    async with page_on(store.url, lambda _: None) as page:
        await refused(await page.get(f"{API}/jobs"), 401, "sign in")


async def test_acts_on_a_job_are_done_once_and_recorded(store: Store) -> None:
    (number,) = await enqueued(store)
    async with page_on(store.url) as page:
        answer = await send(page, f"/jobs/{number}/cancel", token=0, reason="it hangs")
        assert answer.json() == {"schema": 1, "id": number, "answer": "cancelled"}
        again = await send(page, f"/jobs/{number}/cancel")
        await refused(again, 409, "has already ended")
        row = await only(store)
        told = (row.actor, row.verb, row.job_id, row.reason, row.counts)
        assert told == ("ada", "cancel", number, "it hangs", {"cancelled": 1})
        (shown,) = (await read(page, "/actions", job=number))["actions"]
        assert (shown["user"], shown["counts"]) == ("ada", {"cancelled": 1})
        answer = await send(page, f"/jobs/{number}/requeue", from_scratch=True)
        assert answer.json()["answer"] == "requeued"
        await refused(await send(page, f"/jobs/{number}/requeue"), 409, "has not ended")
        await refused(await send(page, f"/jobs/{number}/discard"), 409, "not dead")


async def test_an_act_on_an_attempt_spares_a_newer_one(store: Store) -> None:
    (number,) = await enqueued(store)
    hands = await Hands.on(store)
    token = (await hands.claim_one()).token
    async with page_on(store.url) as page:
        stale = await send(page, f"/jobs/{number}/cancel", token=0)
        await refused(stale, 409, f"a newer attempt (token {token}) has begun since token 0")
        assert (await send(page, f"/jobs/{number}/cancel", token=token)).status_code == 200


async def test_workers_pauses_and_schedules_are_acted_on(store: Store) -> None:
    hands = await Hands.on(store)
    await put_one(store)
    worker = f"/workers/{hands.me.worker_id}/drain"
    async with page_on(store.url) as page:
        assert (await send(page, worker)).json()["asked"] == [hands.me.worker_id]
        await refused(await send(page, "/workers/99/drain"), 409, "there is no worker 99")
        made = await send(page, "/pause", kind="queue", name="mail", reason="it burns")
        assert made.json()["paused_by"] == "ada"
        assert [one.name for one in await store.inspector.pauses()] == ["mail"]
        assert (await read(page, "/pauses"))["pauses"][0]["reason"] == "it burns"
        assert (await send(page, "/resume", kind="queue", name="mail")).status_code == 200
        await refused(await send(page, "/resume", kind="queue", name="mail"), 409, "not paused")
        await refused(await send(page, "/pause", kind="queue"), 400, "needs a name")
        await refused(await send(page, "/pause", kind="all", name="x"), 400, "all takes none")
        assert (await send(page, "/schedules/nightly/pause")).json()["paused"]
        assert (await send(page, "/schedules/nightly/trigger")).json()["created"]
        assert not (await send(page, "/schedules/nightly/resume")).json()["paused"]
        await refused(await send(page, "/schedules/no/such/pause"), 404, "no schedule 'no/such'")
        shown = (await read(page, "/schedules"))["schedules"]
        assert [one["name"] for one in shown] == ["nightly"]
    verbs = [row.verb for row in reversed(await store.inspector.actions())]
    said = "pause schedule, trigger schedule, resume schedule"
    assert verbs == ["drain", "pause", "resume", *said.split(", ")]


async def test_an_event_is_sent_once_with_any_value(store: Store) -> None:
    async with page_on(store.url) as page:
        for sent, value in ((True, {"by": "ada"}), (False, 2)):
            answer = await send(page, "/events", name="approve:17", value=value, reason="fine")
            assert answer.json() == {"schema": 1, "name": "approve:17", "sent": sent}
        await refused(await send(page, "/events", name="a\nb"), 400, "name of an event")
    assert await store.find_event("approve:17") == '[{"by":"ada"}]'
    (row, *_) = await store.inspector.actions()
    assert (row.actor, row.verb, row.target, row.reason) == (
        "ada",
        "send event",
        "approve:17",
        "fine",
    )


async def test_a_bulk_action_is_previewed_and_then_done(store: Store) -> None:
    ids = await deaths(store, await Hands.on(store), 5)
    async with page_on(store.url) as page:
        asked: dict[str, Any] = {"verb": "requeue", "filter": {"queue": "default"}}
        seen = (await send(page, "/bulk", **asked)).json()
        assert (seen["count"], seen["at_least"], seen["up_to_id"]) == (5, False, ids[-1])
        assert await store.inspector.actions() == []
        shown = {name: seen[name] for name in ("up_to_id", "as_of")}
        fewer = await send(page, "/bulk", **asked, **shown, expected=4)
        await refused(fewer, 409, "5 jobs match, but 4 were expected")
        await refused(await send(page, "/bulk", **asked, expected=5), 400, "as the preview")
        begun = await send(page, "/bulk", **asked, **shown, expected=5, reason="mended")
        assert begun.status_code == 202
        done = await finished(page, begun.json()["id"])
        assert (done["counts"], done["state"]) == ({"requeued": 5}, "done")
        assert (done["user"], done["reason"]) == ("ada", "mended")
        wider = await send(page, "/bulk", verb="discard", filter={"quue": "default"})
        await refused(wider, 400, "quue")
        odd = await send(page, "/bulk", verb="discard", filter={"state": "queued"})
        await refused(odd, 400, "discard is for jobs that are dead")


async def test_an_act_on_many_jobs_needs_the_right_of_its_verb_too(store: Store) -> None:
    await deaths(store, await Hands.on(store), 1)
    action_id = await ordered(store)
    async with page_on(store.url, let_in({"view", "bulk", "discard"})) as page:
        asked = await send(page, "/bulk", verb="requeue")
        await refused(asked, 403, "lacks the right requeue")
        stopped = await send(page, f"/actions/{action_id}/stop")
        await refused(stopped, 403, "lacks the right requeue")
        assert (await send(page, "/bulk", verb="discard")).json()["count"] == 1


async def finished(page: Page, action_id: int) -> Any:
    async with asyncio.timeout(60):
        while (shown := await read(page, f"/actions/{action_id}"))["state"] == "running":
            await asyncio.sleep(0.01)
    return shown


async def test_one_that_was_left_is_gone_on_with_when_actions_are_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await deaths(store, await Hands.on(store), 3)
    action_id = await ordered(store)  # and its process dies
    async with page_on(store.url) as page:
        assert (await read(page, f"/actions/{action_id}"))["state"] == "running", "it just began"
        monkeypatch.setattr("outlast.web.bulk_runner.PATIENCE", -1.0)
        assert (await finished(page, action_id))["counts"] == {"requeued": 3}
    assert await ids_in(store, State.QUEUED) == set(ids)


async def test_a_read_only_page_goes_on_with_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deaths(store, await Hands.on(store), 1)
    action_id = await ordered(store)
    monkeypatch.setattr("outlast.web.bulk_runner.PATIENCE", -1.0)
    async with page_on(store.url, read_only=True) as page:
        for _ in range(3):
            assert (await read(page, f"/actions/{action_id}"))["state"] == "running"
        assert (await send(page, f"/actions/{action_id}/stop")).status_code == 403
    assert len(await store.inspector.running_actions()) == 1


async def test_a_bulk_action_is_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP", 1)
    await deaths(store, await Hands.on(store), 3)
    action_id = await ordered(store)
    async with page_on(store.url) as page:
        stopped = (await send(page, f"/actions/{action_id}/stop")).json()
        assert (stopped["state"], stopped["counts"]) == ("stopped", {})
        await refused(await send(page, f"/actions/{action_id}/stop"), 409, "has ended")
        await refused(await send(page, "/actions/99/stop"), 404, "no action 99")


async def test_a_document_names_what_is_left_out_without_the_right_to_see_it(store: Store) -> None:
    (number,) = await enqueued(store, job(policy=Policy(meta="{}")))
    async with page_on(store.url, let_in({"view"})) as page:
        shown = await read(page, f"/jobs/{number}")
        assert (shown["args"], shown["meta"], shown["result"]) == (None, None, None)
        assert shown["hidden"] == ["args", "checkpoint", "result", "stack"]
        (listed,) = (await read(page, "/jobs"))["jobs"]
        assert (listed["args"], listed["args_head"]) == (None, None)


async def test_a_user_of_one_tenant_acts_on_its_jobs_alone(store: Store) -> None:
    hands = await Hands.on(store)
    (mine,) = await deaths(store, hands, 1, tenant="acme")
    (other,) = await deaths(store, hands, 1, tenant="other")
    async with page_on(store.url, let_in(tenant="acme")) as page:
        assert [one["id"] for one in (await read(page, "/jobs"))["jobs"]] == [mine]
        assert [one["id"] for one in (await read(page, "/jobs", tenant="other"))["jobs"]] == [mine]
        await refused(await send(page, f"/jobs/{other}/requeue"), 404)
        asked: dict[str, Any] = {"verb": "discard", "filter": {"tenant": "other"}}
        seen = (await send(page, "/bulk", **asked)).json()
        assert (seen["count"], seen["filter"]["tenant"]) == (1, "acme")
        shown = {name: seen[name] for name in ("up_to_id", "as_of")}
        begun = await send(page, "/bulk", **asked, **shown, expected=1)
        assert (await finished(page, begun.json()["id"]))["counts"] == {"discarded": 1}
        foreign = await ordered(store)
        await refused(await page.get(f"{API}/actions/{foreign}"), 404)
        await refused(await send(page, f"/actions/{foreign}/stop"), 404)
        operators = NewPause(kind=PauseKind.TENANT, name="acme", paused_by="root", reason="unpaid")
        await store.pause(operators)
        assert (await send(page, "/resume", kind="tenant", name="acme")).status_code == 200
        assert (await send(page, "/pause", kind="tenant", name="acme")).status_code == 200
        await refused(await send(page, "/pause", kind="queue", name="q"), 403, "only the tenant")
        await refused(await send(page, "/resume", kind="tenant", name="other"), 403)
    assert await ids_in(store, State.DEAD) == {other}
    assert [one.kind for one in await store.inspector.pauses()] == [PauseKind.TENANT]


async def test_me_and_the_description_tell_what_there_is(store: Store) -> None:
    async with page_on(store.url, let_in({"view", "cancel"}, "acme"), name="PROD") as page:
        me = await read(page, "/me")
        assert (me["user"], me["rights"]) == ("ada", ["cancel", "view"])
        assert (me["tenant"], me["name"]) == ("acme", "PROD")
        told = await read(page, "/openapi.json")
    assert told["openapi"] == "3.1.0"
    cancel = told["paths"]["/api/v1/jobs/{job_id}/cancel"]["post"]
    assert cancel["description"] == "Needs the right `cancel`."
    body = cancel["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    fields = told["components"]["schemas"][body.rpartition("/")[2]]["properties"]
    assert set(fields) == {"token", "from_scratch", "reason"}


def test_descriptions_are_not_indented_as_in_the_source() -> None:
    schemas = describe_api(ROUTES)["components"]["schemas"].values()
    said = [each["description"] for each in schemas if "description" in each]
    assert said == [inspect.cleandoc(each) for each in said]


async def test_a_store_that_does_not_answer_is_503(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nothing.db"
    async with page_on(url) as page:
        answer = await page.get(f"{API}/jobs")
    await refused(answer, 503)
