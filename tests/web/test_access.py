"""Every route of the application, for every right, from every place: nothing leaks, all say why.

The table below has a row for each route. The test takes the routes from the application itself, so
a new one without a row fails.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from starlette.routing import Route

from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy
from outlast.store.actions import Bulk, Note
from outlast.store.logs import JobLog, LogLine
from outlast.store.stacks import Stack
from outlast.web.access import EVERYTHING, Judge, Right
from outlast.web.application import ENDPOINTS, application_of
from outlast.web.problem import API
from outlast.web.session import Anyone
from outlast.web.site import Site
from tests.conformance.kit import Hands, crashed, enqueued, job
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.schedules_kit import put_one
from tests.manual_clock import ManualClock
from tests.web.kit import Page, let_in, page_on

if TYPE_CHECKING:
    import httpx

    from outlast.store.protocol import Store

MARK = "4711-of-the-other"  # in all that the other tenant's job holds
OWN = "mine-of-acme"
SAME = {"sec-fetch-site": "same-origin"}
CROSS = {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}
WRONG_HOST = {"host": "evil.example", "sec-fetch-site": "same-origin"}


class Case(NamedTuple):
    """A route. ``needs``: the right without which it is refused; ``by_tenant``: it keeps to the
    jobs of a tenant; else users of one are refused. ``url``: an address of it, for a job, a worker,
    an action; ``body``: what is sent."""

    needs: str
    by_tenant: bool
    url: str
    body: dict[str, Any] | None = None


def get(url: str, *, by_tenant: bool = False, needs: str = "view") -> Case:
    return Case(needs, by_tenant, url)


def post(url: str, needs: str, *, by_tenant: bool = False, **body: Any) -> Case:
    return Case(needs, by_tenant, url, body)


JOB = "/jobs/{job_id:int}"
SHOWN = {"filter": '{"tenant": "other"}', "up_to_id": "9", "as_of": "1e12", "expected": "9"}
BOTH = {  # a page and a call of the API
    ("GET", "/jobs"): get("/jobs", by_tenant=True),
    ("GET", JOB): get("/jobs/{job}", by_tenant=True),
    ("GET", f"{JOB}/logs"): get("/jobs/{job}/logs", by_tenant=True, needs="payload"),
    ("POST", f"{JOB}/cancel"): post("/jobs/{job}/cancel", "cancel", by_tenant=True),
    ("POST", f"{JOB}/stack"): post("/jobs/{job}/stack", "cancel", by_tenant=True),
    ("POST", f"{JOB}/requeue"): post("/jobs/{job}/requeue", "requeue", by_tenant=True),
    ("POST", f"{JOB}/discard"): post("/jobs/{job}/discard", "discard", by_tenant=True),
    ("POST", f"{JOB}/skip"): post("/jobs/{job}/skip", "requeue", by_tenant=True),
    ("GET", "/flows"): get("/flows", by_tenant=True),
    ("GET", "/flows/{job_id:int}"): get("/flows/{job}", by_tenant=True),
    ("POST", "/flows/{job_id:int}/cancel"): post("/flows/{job}/cancel", "cancel", by_tenant=True),
    ("POST", "/flows/{job_id:int}/retry"): post("/flows/{job}/retry", "requeue", by_tenant=True),
    ("GET", "/deaths"): get("/deaths", by_tenant=True),
    ("GET", "/workers"): get("/workers"),
    ("GET", "/refusals"): get("/refusals"),
    ("GET", "/actions"): get("/actions"),
    ("GET", "/actions/{action_id:int}"): get("/actions/{action}", by_tenant=True),
    ("GET", "/schedules"): get("/schedules"),
    ("POST", "/workers/{worker_id:int}/drain"): post("/workers/{worker}/drain", "drain"),
    ("POST", "/pause"): post("/pause", "pause", by_tenant=True, kind="tenant", name="other"),
    ("POST", "/resume"): post("/resume", "pause", by_tenant=True, kind="tenant", name="other"),
    ("GET", "/limits"): get("/limits"),
    ("POST", "/actions/{action_id:int}/stop"): post(
        "/actions/{action}/stop", "bulk", by_tenant=True
    ),
}
PAGES = BOTH | {
    ("GET", "/"): get("/", by_tenant=True),
    ("GET", "/go"): get("/go?q={job}", by_tenant=True),
    ("GET", f"{JOB}/payload/{{name}}"): get(
        "/jobs/{job}/payload/args", by_tenant=True, needs="payload"
    ),
    ("GET", f"{JOB}/{{verb}}"): get("/jobs/{job}/cancel", by_tenant=True, needs="cancel"),
    ("POST", "/events/send"): post("/events/send", "trigger", name="approve:17"),
    ("GET", "/queues"): get("/queues"),
    ("GET", "/queues/queue"): get("/queues/queue?name=default"),
    ("GET", "/tasks"): get("/tasks"),
    ("GET", "/tasks/task"): get("/tasks/task?name=app.work"),
    ("GET", "/dead"): get("/dead", by_tenant=True),
    ("GET", "/dead/group"): get("/dead/group", by_tenant=True),
    ("GET", "/jobs/cancel"): get("/jobs/cancel?state=queued", by_tenant=True, needs="bulk"),
    ("GET", "/jobs/requeue"): get("/jobs/requeue?tenant=other", by_tenant=True, needs="bulk"),
    ("GET", "/jobs/discard"): get("/jobs/discard?tenant=other", by_tenant=True, needs="bulk"),
    ("POST", "/jobs/cancel"): post("/jobs/cancel", "bulk", by_tenant=True, **SHOWN),
    ("POST", "/jobs/requeue"): post("/jobs/requeue", "bulk", by_tenant=True, **SHOWN),
    ("POST", "/jobs/discard"): post("/jobs/discard", "bulk", by_tenant=True, **SHOWN),
    ("GET", "/workers/{worker_id:int}"): get("/workers/{worker}"),
    ("GET", "/system"): get("/system"),
    ("GET", "/metrics"): get("/metrics"),
    ("GET", "/schedules/schedule"): get("/schedules/schedule?name=nightly"),
    ("POST", "/schedules/pause"): post("/schedules/pause", "pause", name="nightly"),
    ("POST", "/schedules/resume"): post("/schedules/resume", "pause", name="nightly"),
    ("POST", "/schedules/trigger"): post("/schedules/trigger", "trigger", name="nightly"),
    ("GET", "/limits/limit"): get("/limits/limit?name=heavy"),
    ("POST", "/limits/set"): post("/limits/set", "limit", name="heavy", running="3"),
    ("POST", "/limits/reset"): post("/limits/reset", "limit", name="heavy"),
    ("POST", "/limits/hold"): post("/limits/hold", "limit", name="heavy", seconds="9"),
    ("GET", "/{path:path}"): get("/no/such/page", by_tenant=True),
}
SCHEDULE = "/schedules/{name:path}"
CALLS = BOTH | {
    ("GET", "/stats"): get("/stats"),
    ("GET", f"{JOB}/why"): get("/jobs/{job}/why", by_tenant=True),
    ("GET", f"{JOB}/attempts"): get("/jobs/{job}/attempts", by_tenant=True),
    ("GET", f"{JOB}/{{name:str}}"): get("/jobs/{job}/args", by_tenant=True, needs="payload"),
    ("GET", "/dead/groups"): get("/dead/groups", by_tenant=True),
    ("GET", "/pauses"): get("/pauses"),
    ("POST", f"{SCHEDULE}/pause"): post("/schedules/nightly/pause", "pause"),
    ("POST", f"{SCHEDULE}/resume"): post("/schedules/nightly/resume", "pause"),
    ("POST", f"{SCHEDULE}/trigger"): post("/schedules/nightly/trigger", "trigger"),
    ("POST", "/events"): post("/events", "trigger", name="approve:17"),
    ("GET", "/limits/{name:path}"): get("/limits/heavy"),
    ("POST", "/limits/{name:path}/set"): post("/limits/heavy/set", "limit", running=3),
    ("POST", "/limits/{name:path}/reset"): post("/limits/heavy/reset", "limit"),
    ("POST", "/limits/{name:path}/hold"): post("/limits/heavy/hold", "limit", seconds=9),
    ("GET", "/doctor"): get("/doctor"),
    ("GET", "/history"): get("/history"),
    ("GET", "/scale"): get("/scale?queue=default"),
    ("POST", "/bulk"): post("/bulk", "bulk", by_tenant=True, verb="discard"),
    ("GET", "/me"): get("/me", by_tenant=True),
    ("GET", "/openapi.json"): get("/openapi.json", by_tenant=True),
    ("GET", "/{path:path}"): get("/nothing", by_tenant=True),
    **{(method, "/{path:path}"): post("/nothing", "view", by_tenant=True)
       for method in ("POST", "PUT", "PATCH", "DELETE")},
}  # fmt: skip
CASES = PAGES | {
    (method, API + path): case._replace(url=API + case.url)
    for (method, path), case in CALLS.items()
}
ASSETS = {"/static/{digest}/{name}"}  # files of ours: the same for everyone


def routes_of_the_application() -> set[tuple[str, str]]:
    """Return method and path of all routes, as the server has them."""
    guard: Any = application_of(Site("sqlite:///x.db", let_in()))
    routes = [each for each in guard._app.routes if isinstance(each, Route)]
    assert len(routes) == len(guard._app.routes)
    return {
        (method, each.path)
        for each in routes
        if each.path not in ASSETS
        for method in (each.methods or set()) - {"HEAD"}
    }


def test_each_route_has_a_row() -> None:
    assert routes_of_the_application() == set(CASES)


def test_each_route_needs_what_its_row_says() -> None:
    """The page that confirms an act asks for the right of the act itself."""
    own = {(each.method, each.path): each for each in ENDPOINTS}
    told = {
        key: ("view" if key[1].endswith("/{verb}") else case.needs, case.by_tenant)
        for key, case in CASES.items()
        if key in own
    }
    assert told == {key: (each.right.value, each.by_tenant) for key, each in own.items()}


class World(NamedTuple):
    """A store with a job of each of two tenants, dead, and what addresses name."""

    store: Store
    hands: Hands
    other: int
    names: dict[str, int]

    def url(self, case: Case, number: int | None = None) -> str:
        return case.url.format(job=number or self.other, **self.names)

    async def own(self) -> int:
        """Return a dead job of Acme."""
        return await die(self.hands, "acme", OWN)


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: what is refused never comes to the store; test_api.py has both."""
    return sqlite_url


async def die(hands: Hands, tenant: str, text: str) -> int:
    """Return a dead job of a tenant that holds a text wherever a job can."""
    store = hands.store
    policy = Policy(retries=0, meta=f'"{text}"', labels=(f"label-{text}",))
    (number,) = await enqueued(
        store,
        job(args=f'{{"secret":"{text}"}}', tenant=tenant, key=f"key-{text}", policy=policy),
    )
    claimed = await hands.claim_one()
    printed = [LogLine(1e9, text), LogLine(1e9, f"secret {text}")]
    await store.keep_logs([JobLog(claimed.job_id, claimed.token, claimed.number, printed)])
    stack = Stack(token=claimed.token, asked=1, text=f"secret {text}", line=text)
    assert await store.keep_stack(number, stack)
    end = crashed(claimed)
    crash = Crash(kind=CrashKind.ERROR, message=text, output=[text], traceback=text)
    await hands.hand_in(msgspec.structs.replace(end, crash=crash, message=text))
    return number


@pytest.fixture
async def world(store: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    """Dead jobs of two tenants, a worker, a schedule, a bulk action of the other tenant."""
    monkeypatch.setattr("outlast.web.bulk_runner.PATIENCE", 1e9)  # no step on a slow machine
    hands = await Hands.on(store)
    await die(hands, "acme", OWN)
    other = await die(hands, "other", MARK)
    await put_one(store)
    bulk = Bulk(up_to_id=99, as_of=1e9, expected=1)
    note = Note(actor="eve", verb="discard", filter='{"tenant":"other"}', reason=MARK, bulk=bulk)
    names = {"worker": hands.me.worker_id, "action": await store.note(note)}
    return World(store, hands, other, names)


async def ask(
    page: Page, world: World, method: str, case: Case, headers: dict[str, str], number: int = 0
) -> httpx.Response:
    url = world.url(case, number)
    if method == "GET":
        return await page.get(url, headers=headers)
    if url.startswith(API):
        return await page.post(url, json=case.body, headers=headers)
    return await page.post(url, data=case.body, headers=headers)


def says_why(answer: httpx.Response, *words: str) -> None:
    """Check that a refusal says why, in words that a person can act on."""
    assert any(word in answer.text for word in words), (answer.request.url, answer.text[:500])
    if answer.request.url.path.startswith(API):
        assert answer.json()["error"]["message"]


async def state_of(store: Store) -> dict[str, list[Any]]:
    """Return all that an act could have changed."""
    look = store.inspector
    return {
        "jobs": await look.jobs_of([1, 2, 3]),
        "actions": await look.actions(),
        "pauses": await look.pauses(),
        "schedules": await look.schedules(),
        "workers": [(row.drain_requested, row.stacks) for row in await look.workers()],
    }


READS = {key: case for key, case in CASES.items() if key[0] == "GET"}
IN_ORDER = READS | CASES  # what acts comes last


async def test_a_route_is_for_those_with_its_right_alone(world: World) -> None:
    before = await state_of(world.store)
    for lacked in (None, *Right):
        can = EVERYTHING - {lacked} if lacked else set()
        async with page_on(world.store.url, let_in(can)) as page:
            for (method, _), case in IN_ORDER.items():
                if lacked in {None, Right(case.needs), Right.VIEW}:
                    answer = await ask(page, world, method, case, SAME)
                    assert answer.status_code == 403, (case, can, answer.text[:300])
                    says_why(answer, "lacks the right")
                    assert MARK not in answer.text, case
                    assert OWN not in answer.text, case
    assert await state_of(world.store) == before
    for key, case in IN_ORDER.items():
        async with page_on(world.store.url, let_in({"view", case.needs, *_also(key)})) as page:
            answer = await ask(page, world, key[0], case, SAME)
            refused = {401, 403, 405, 421, 500}
            assert answer.status_code not in refused, (case, answer.text[:300])


def _also(key: tuple[str, str]) -> set[str]:
    """Return the right of the verb that a bulk action does."""
    path = key[1]
    if path in {"/jobs/cancel", "/jobs/requeue", "/jobs/discard"}:
        return {path.rpartition("/")[2]}
    return {"discard"} if path.endswith(("/bulk", "/stop")) else set()


async def test_a_route_is_closed_to_strangers_other_sites_and_other_names(world: World) -> None:
    before = await state_of(world.store)
    async with page_on(world.store.url, lambda _: None) as page:
        for (method, _), case in IN_ORDER.items():
            answer = await ask(page, world, method, case, SAME)
            assert answer.status_code == 401, case
            says_why(answer, "sign in")
            assert MARK not in answer.text, case
    async with page_on(world.store.url) as page:
        for (method, _), case in IN_ORDER.items():
            answer = await ask(page, world, method, case, WRONG_HOST)
            assert answer.status_code == 421, case
            says_why(answer, "not answer to the name")
            assert MARK not in answer.text, case
            answer = await ask(page, world, method, case, CROSS)
            assert "access-control-allow-origin" not in answer.headers, case
            if method == "POST":
                assert answer.status_code == 403, case
                says_why(answer, "must come from this page")
            preflight = await page.request("OPTIONS", world.url(case), headers=CROSS)
            assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert await state_of(world.store) == before


async def test_a_page_that_is_read_only_does_nothing(world: World) -> None:
    before = await state_of(world.store)
    async with page_on(world.store.url, read_only=True) as page:
        for (method, _), case in IN_ORDER.items():
            if method == "POST":
                answer = await ask(page, world, method, case, SAME)
                assert answer.status_code in {403, 404}, (case, answer.text[:300])
    assert await state_of(world.store) == before


async def test_a_user_of_one_tenant_sees_and_touches_nothing_of_another(world: World) -> None:
    before = await state_of(world.store)
    own = []
    async with page_on(world.store.url, let_in(tenant="acme")) as page:
        for (method, _), case in IN_ORDER.items():
            answer = await ask(page, world, method, case, SAME)
            if not case.by_tenant:
                assert answer.status_code == 403, (case, answer.text[:300])
                says_why(answer, "may see only acme")
            elif "{job}" in case.url:
                assert answer.status_code == 404, (case, answer.text[:300])
                says_why(answer, "no job", "No job", f"{world.other}")
            assert MARK not in answer.text, case
            assert f'/jobs/{world.other}"' not in answer.text, case
            if "{job}" in case.url:
                own.append(await world.own())
                mine = await ask(page, world, method, case, SAME, own[-1])
                assert mine.status_code in {200, 303, 409}, (case, mine.text[:300])
    after = await state_of(world.store)
    for rows in (before, after):
        rows["jobs"] = [row for row in rows["jobs"] if row.id == world.other]
        rows["actions"] = [
            row
            for row in rows["actions"]
            if row.job_id not in own and '"tenant":"acme"' not in (row.filter or "")
        ]
    assert after == before


async def test_a_user_of_one_tenant_comes_from_the_root_to_the_jobs(world: World) -> None:
    own = await world.own()
    async with page_on(world.store.url, let_in(tenant="acme")) as page:
        answer = await page.get("/", follow_redirects=True)
    assert (answer.status_code, answer.url.path) == (200, "/jobs")
    assert f'href="./jobs/{own}"' in answer.text
    assert f'href="./jobs/{world.other}"' not in answer.text


@pytest.mark.parametrize(
    ("judge", "said"),
    [(let_in(), "You are ada"), (Anyone().judge, "Open to anyone, without signing in")],
)
async def test_the_foot_says_who_looks(world: World, judge: Judge, said: str) -> None:
    async with page_on(world.store.url, judge) as page:
        assert f"<span>{said}</span>" in await page.see("/")


TIMES = re.compile(r"\d+\.\d+|\b\d+ (?:s|ms)\b|\bjust now\b|\bnow\b| ago\b|\d\d:\d\d:\d\d")


async def fill_queue(hands: Hands, tenant: str, priority: int) -> None:
    """Put jobs of a tenant into the queue: two that are dead, one that runs, and one that waits,
    before those of a lower priority."""
    store = hands.store
    where: dict[str, Any] = {"tenant": tenant, "priority": priority}
    await enqueued(store, *[job(policy=Policy(retries=0), **where)] * 2, job(**where))
    for one in await hands.claim(2):
        await hands.hand_in(crashed(one))
    await hands.claim_one()
    await enqueued(store, job(**where))


async def look_at_own(store: Store) -> dict[str, str]:
    """Return what a user of one tenant is shown of its four jobs, without times."""
    seen = {}
    async with page_on(store.url, let_in(tenant="acme")) as page:
        page.site.clock = ManualClock(wall=4e9)
        for method, path in CASES:
            case = CASES[method, path]
            if method == "GET" and case.by_tenant and "{action}" not in case.url:
                for number in range(1, 5) if "{job}" in case.url else [0]:
                    url = case.url.format(job=number)
                    seen[url] = TIMES.sub("", (await page.get(url)).text)
    return seen


async def test_a_user_of_one_tenant_is_told_no_count_of_others_under_its_limits(
    store: Store,
) -> None:
    """That a limit is full is its own; how many jobs of others fill it is not."""
    hands = await Hands.on(store)
    await declare(store, "shared", running=2)
    others = await enqueued(store, *[limited(need("shared"), tenant="other")] * 6)
    (mine,) = await enqueued(store, limited(need("shared"), tenant="acme"))
    assert len(await hands.claim(2)) == 2
    urls = [f"/jobs/{mine}", f"/api/v1/jobs/{mine}/why", f"/api/v1/jobs/{mine}"]

    async def look() -> list[str]:
        async with page_on(store.url, let_in(tenant="acme")) as page:
            page.site.clock = ManualClock(wall=4e9)
            return [TIMES.sub("", (await page.get(url)).text) for url in urls]

    beside_six = await look()
    assert "It waits for" in beside_six[1]
    await store.cancel(others[-2:])
    assert beside_six == await look()


async def test_what_a_user_of_one_tenant_is_shown_depends_on_no_other(store: Store) -> None:
    """The same answers, whether another tenant has no job in the store or many."""
    hands = await Hands.on(store, lease=5_000.0)  # still as many minutes in some seconds
    await fill_queue(hands, "acme", 0)
    alone = await look_at_own(store)
    for priority in (1, 2, 3):
        await fill_queue(hands, "other", priority)
    beside = await look_at_own(store)
    for url, text in beside.items():
        assert text.splitlines() == alone[url].splitlines(), url
