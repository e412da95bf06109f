"""A secret is planted wherever a store has room for one, and looked for in all that the page gives.

The addresses come from the application itself and from the links of its pages, so that a new one is
asked, too. A piece of six characters counts as the secret: texts are cut and folded on their way.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.model.pause import PauseKind
from outlast.store.actions import Bulk, Note
from outlast.store.logs import JobLog, LogLine
from outlast.store.stacks import Stack
from outlast.store.values import Failing, NewPause, Report, Save
from outlast.web.access import EVERYTHING, Right
from outlast.web.application import ENDPOINTS
from outlast.web.problem import API
from tests.conformance.kit import Hands, ended, enqueued, job
from tests.conformance.schedules_kit import put_one
from tests.web.kit import FORM, Page, let_in, page_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.store.protocol import Store

PATTERN = r"zq[a-z]{14}qz"
PIECE = 6  # characters of a secret that are too many
PAGES_MAX = 400
FINAL = Policy(retries=0)


class Secrets:
    """Secrets by the place where they are planted."""

    def __init__(self) -> None:
        self.by_place: dict[str, str] = {}

    def plant(self, place: str) -> str:
        """Return the secret of a place. No piece of it is a word, or a piece of another."""
        number = int(hashlib.sha256(place.encode()).hexdigest(), 16)
        letters = "".join(chr(97 + (number // 26**at) % 26) for at in range(14))
        return self.by_place.setdefault(place, f"zq{letters}qz")

    def long(self, place: str, characters: int) -> str:
        """Return a text so full of the secret that wherever it is cut, that is cut too."""
        return " ".join([self.plant(place)] * (characters // 19))

    def found(self, text: str, whole: bool = False) -> Iterator[str]:
        """Yield the places whose secrets stand in a text: a piece of one, or a whole one."""
        for place, secret in self.by_place.items():
            letters = secret[2:-2]
            pieces = [letters[at : at + PIECE] for at in range(len(letters) - PIECE + 1)]
            if any(piece in text for piece in ([secret] if whole else pieces)):
                yield place


class World(NamedTuple):
    """What is planted; ``names``: what stands in addresses. ``payloads``: places of payloads."""

    secrets: Secrets
    names: dict[str, list[str]]
    payloads: set[str]


async def planted(store: Store) -> World:
    """Plant secrets in all columns that hold what users have given."""
    secrets = Secrets()
    plant, long = secrets.plant, secrets.long
    hands = await Hands.on(store)
    texts = {
        name: json.dumps(
            {"secret": long(name, 300), "nested": json.dumps(plant(f"{name} in JSON"))}
        )
        for name in ("args", "checkpoint", "result", "meta")
    }
    policy = Policy(retries=0, meta=texts["meta"], labels=(plant("label"),))
    ran = await enqueued(store, job(args=texts["args"], key=plant("key"), policy=policy))
    done = await hands.claim_one()
    await hands.hand_in(ended(done, OutcomeKind.COMPLETED, result=texts["result"]))
    ran += await enqueued(store, job(args=json.dumps({"pages": long("long args", 60_000)})))
    running = await hands.claim_one()
    await store.checkpoint([Save(running.job_id, running.token, 1, texts["checkpoint"])])
    said = Progress(0.5, plant("stage"), long("progress", 800))
    await store.progress([Report(running.job_id, running.token, said)])
    stack = Stack(token=running.token, asked=1, text=plant("stack"), line=plant("line of a stack"))
    assert await store.keep_stack(running.job_id, stack)
    lines = [LogLine(1e9, long("log", 900)), LogLine(1e9, f"as bytes: {plant('log').encode()!r}")]
    await store.keep_logs([JobLog(running.job_id, running.token, 1, lines)])
    for number in (0, 7, 13):  # so that cuts fall elsewhere in each
        ran += await enqueued(store, job(policy=FINAL, task=f"app.other{number}"))
        claimed = (await hands.claim(1, tasks=[f"app.other{number}"]))[0]
        shift = "x" * number + " "
        crash = Crash(
            kind=CrashKind.ERROR,
            message=shift + long("message", 1_950),
            exception=plant("exception"),
            traceback=shift + long("traceback", 16_000),
            stacks=long("stacks", 2_000),
            output=[long("output", 1_000)],
            progress=Progress(stage=plant("last stage"), message=plant("last progress")),
        )
        end = ended(claimed, OutcomeKind.CRASHED, crash=crash, message=crash.message)
        await hands.hand_in(end)
    call = job(args=json.dumps({"a": plant("args of a schedule")}))
    await put_one(store, "nightly", call=call)
    sought = {"args": plant("args of a filter"), "error": plant("error of a filter")}
    bulk = Bulk(up_to_id=99, as_of=1e9, expected=1)
    note = Note(
        actor="eve",
        verb="cancel",
        filter=json.dumps(sought),
        reason=long("reason of an action", 900),
        bulk=bulk,
    )
    action = await store.note(note)
    await store.stop_action(action)
    await store.note(
        Note(actor="eve", verb="cancel", target=f"job {ran[1]}", job_id=ran[1], reason=plant("why"))
    )
    why = long("reason of a pause", 400)
    for kind, name in ((PauseKind.ALL, ""), (PauseKind.QUEUE, "default"), (PauseKind.TASK, "a.b")):
        await store.pause(NewPause(kind=kind, name=name, paused_by="eve", reason=why))
    ran += await enqueued(store, job())
    await store.tell_failing(hands.me, Failing("exchange", long("failing", 600), 60.0))
    await store.tell_wakeup(hands.me, f"nats is away: {long('wakeup', 400)}")
    await store.presence_off(hands.me, long("presence off", 400))
    payloads = {"args", "checkpoint", "result", "meta", "long args", "stack", "line of a stack"}
    payloads |= {f"{name} in JSON" for name in texts}
    payloads |= {"log", "output", "args of a schedule", "args of a filter"}
    names = {
        "job_id": [str(one) for one in ran],
        "worker_id": [str(hands.me.worker_id)],
        "action_id": [str(action)],
        "name": ["nightly", "args", "checkpoint", "result"],
        "verb": ["cancel", "requeue", "discard"],
        "path": ["nowhere"],
    }
    return World(secrets, names, payloads)


def addresses(world: World, method: str) -> list[str]:
    """Return the addresses of all endpoints, with each name that may stand in them."""
    found: list[str] = []
    for each in ENDPOINTS:
        urls = [each.path] if each.method == method else []
        while any("{" in url for url in urls):
            urls = [
                url[: where.start()] + name + url[where.end() :]
                for url in urls
                if (where := re.search(r"\{(\w+)(:\w+)?\}", url)) is not None
                for name in world.names[where[1]]
            ]
        found += urls
    return found


async def read_everything(page: Page, world: World) -> dict[str, str]:
    """Return what each address answers: those of the application, and all that pages link to; then
    what is said to those who act, with what the page would send and with nothing."""
    told: dict[str, str] = {}
    asked = [*addresses(world, "GET"), "/api/v1/scale?queue=default"]
    asked = [url for url in asked if "{" not in url and not url.endswith("/events")]
    while asked and len(told) < PAGES_MAX:
        url = asked.pop(0)
        if url in told:
            continue
        answer = await page.get(url)
        told[url] = answer.text + str(answer.headers)
        if "html" in answer.headers.get("content-type", ""):
            links = re.findall(r'href="([^"#]+)"', answer.text)
            here = [urljoin(f"http://localhost{url}", html.unescape(link)) for link in links]
            local = [link.removeprefix("http://localhost") for link in here]
            asked += [one for one in local if one.startswith("/") and "/static/" not in one]
    assert len(told) < PAGES_MAX, "a page links to pages without end"
    for url in addresses(world, "POST"):
        for body in ({}, {"verb": "cancel"}, {"kind": "all"}, {"name": "nightly"}):
            sent: dict[str, Any] = {"json": body} if url.startswith(API) else {"data": body}
            answer = await page.post(url, headers=FORM, **sent)
            told[f"POST {url} {body}"] = answer.text + str(answer.headers)
    return told


def leaks(told: dict[str, str], world: World) -> list[tuple[str, str]]:
    """Return which secrets stand where."""
    return [(place, url) for url, text in told.items() for place in world.secrets.found(text)]


async def test_the_page_shows_all_that_is_planted_where_nothing_is_hidden(store: Store) -> None:
    """So it would be found where it must not be."""
    world = await planted(store)
    async with page_on(store.url) as page:
        told = await read_everything(page, world)
    shown = {place for text in told.values() for place in world.secrets.found(text, whole=True)}
    assert set(world.secrets.by_place) - shown == set()


async def test_no_byte_of_the_page_or_its_api_holds_what_is_hidden(store: Store) -> None:
    world = await planted(store)
    async with page_on(store.url, hide=PATTERN) as page:
        assert leaks(await read_everything(page, world), world) == []


async def test_no_byte_of_the_page_or_its_api_holds_a_payload_without_its_right(
    store: Store,
) -> None:
    world = await planted(store)
    async with page_on(store.url, let_in(EVERYTHING - {Right.PAYLOAD})) as page:
        found = leaks(await read_everything(page, world), world)
    assert [one for one in found if one[0] in world.payloads] == []
