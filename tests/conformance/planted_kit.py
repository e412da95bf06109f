"""A secret of its own in each place of a store that has room for one, and what finds it again.

A piece of six characters counts as the secret: texts are cut and folded on their way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import pytest

from outlast.model.crash import Crash, CrashKind, Progress, clean
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.model.pause import PauseKind
from outlast.store.actions import Bulk, Note
from outlast.store.logs import JobLog, LogLine
from outlast.store.stacks import Stack
from outlast.store.values import Answer, Failing, NamedStep, NewPause, Report, Save
from tests.conformance.kit import Hands, ended, enqueued, job
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.schedules_kit import put_one

if TYPE_CHECKING:
    from outlast.store.protocol import Store

PATTERN = r"zq[a-z]{14}qz"
PIECE = 6  # characters of a secret that are too many
FINAL = Policy(retries=0)
ROLE = "outlast_planted"


Form = Callable[[str], str]


def _in_json(secret: str) -> str:
    """Return a document with the secret under a key, as it is and in a string of JSON."""
    return json.dumps({"token": secret, "inner": json.dumps({"token": secret})})


def _by_python(secret: str) -> str:
    """Return what Python writes of such a document, and of a command's error with its output."""
    return repr({"token": secret, "of": {"token": secret.encode(), "n": [repr({"token": secret})]}})


def _as_an_error_quotes(secret: str) -> str:
    """Return what Python writes of a text that holds such a document."""
    return f"cannot use {json.dumps({'token': json.dumps({'kind': 'key', 'of': secret})})!r}"


FORMS: dict[str, Form] = {
    "plain": str,
    "JSON": _in_json,
    "Python": _by_python,
    "quoted": _as_an_error_quotes,
}
"""How a secret is written. In all but the first one each stands under the key ``token``."""


class Secrets:
    """Secrets by the place where they are planted, all written in one form."""

    def __init__(self, form: Form = str) -> None:
        self.by_place: dict[str, str] = {}
        self._form = form

    def plant(self, place: str) -> str:
        """Return the secret of a place in its form. No piece of it is a word, or a piece of
        another."""
        number = int(hashlib.sha256(place.encode()).hexdigest(), 16)
        letters = "".join(chr(97 + (number // 26**at) % 26) for at in range(14))
        return self._form(self.by_place.setdefault(place, f"zq{letters}qz"))

    def long(self, place: str, characters: int) -> str:
        """Return a text so full of the secret that wherever it is cut, that is cut too."""
        one = self.plant(place)
        return " ".join([one] * max(1, characters // (len(one) + 1)))

    def found(self, text: str, *, whole: bool = False) -> set[str]:
        """Return the places whose secrets stand in a text: a piece of one, or a whole one."""
        return {
            place
            for place, secret in self.by_place.items()
            if any(piece in text for piece in ([secret] if whole else _pieces(secret)))
        }


def _pieces(secret: str) -> list[str]:
    letters = secret[2:-2]
    return [letters[at : at + PIECE] for at in range(len(letters) - PIECE + 1)]


class World(NamedTuple):
    """What is planted; ``names``: what stands in addresses. ``payloads``: places of payloads, of
    which ``encoded`` are those that an application can encrypt."""

    secrets: Secrets
    names: dict[str, list[str]]
    payloads: set[str]
    encoded: set[str]


def _as_it_is(kind: str, text: str) -> str:
    return text


async def planted(
    store: Store, form: Form = str, encode: Callable[[str, str], str] = _as_it_is
) -> World:
    """Plant secrets in all columns that hold what users have given. ``encode``: ``App(payloads=)``,
    called with the kind of a payload and its text."""
    secrets = Secrets(form)
    plant, long = secrets.plant, secrets.long
    lacks = {"app.elsewhere": [plant("tag that a worker lacks")]}
    hands = await Hands.on(store, tags=[plant("tag of a worker")], lacks=lacks)
    texts = {
        name: json.dumps(
            {"secret": long(name, 300), "nested": json.dumps(plant(f"{name} in JSON"))}
        )
        for name in ("args", "checkpoint", "result", "meta")
    }
    policy = Policy(retries=0, meta=texts["meta"], labels=(plant("label"),))
    ran = await enqueued(
        store, job(args=encode("args", texts["args"]), key=plant("key"), policy=policy)
    )
    done = await hands.claim_one()
    await hands.hand_in(
        ended(done, OutcomeKind.COMPLETED, result=encode("result", texts["result"]))
    )
    pages = json.dumps({"pages": long("long args", 60_000)})
    ran += await enqueued(store, job(args=encode("args", pages)))
    running = await hands.claim_one()
    await store.checkpoint(
        [Save(running.job_id, running.token, 1, encode("checkpoint", texts["checkpoint"]))]
    )
    said = Progress(0.5, plant("stage"), long("progress", 800))
    await store.progress([Report(running.job_id, running.token, said)])
    stack = Stack(token=running.token, asked=1, text=plant("stack"), line=plant("line of a stack"))
    assert await store.keep_stack(running.job_id, stack)
    lines = [LogLine(1e9, long("log", 900)), LogLine(1e9, f"as bytes: {plant('log').encode()!r}")]
    pieces = "x" * 3_993 + plant("log in pieces") + "y" * 4_000
    lines += [LogLine(1e9, pieces[:4_000]), LogLine(1e9, pieces[4_000:])]
    await store.keep_logs([JobLog(running.job_id, running.token, 1, lines)])
    step = NamedStep(running.job_id, running.token, plant("name of a step"), '"a value"')
    assert await store.keep_steps([step]) == [Answer.ACCEPTED]
    for number in (0, 7, 13):  # so that cuts fall elsewhere in each
        ran += await enqueued(store, job(policy=FINAL, task=f"app.other{number}"))
        claimed = (await hands.claim(1, tasks=[f"app.other{number}"]))[0]
        shift = "x" * number + " "
        crash = Crash(
            kind=CrashKind.ERROR,
            message=clean(shift + long("message", 3_000 if form is str else 1_950)),
            exception=plant("exception"),
            traceback=shift + long("traceback", 16_000),
            stacks=long("stacks", 2_000),
            output=[long("output", 1_000), (shift + long("output", 9_000))[-2_000:]],
            progress=Progress(
                stage=clean(shift + long("last stage", 400), 200), message=plant("last progress")
            ),
        )
        end = ended(claimed, OutcomeKind.CRASHED, crash=crash, message=crash.message)
        await hands.hand_in(end)
    ran += await enqueued(store, job())
    event = plant("name of an event")
    waits = ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=3_600.0, event=event)
    await hands.hand_in(waits)
    await declare(store, "nightly", running=1)
    under = need("nightly", plant("key of a limit"))
    ran += await enqueued(store, limited(under), limited(under))
    await hands.claim(2)
    call = job(args=encode("args", json.dumps({"a": plant("args of a schedule")})))
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
    encoded = {"args", "checkpoint", "result"}
    encoded |= {f"{name} in JSON" for name in encoded} | {"long args", "args of a schedule"}
    payloads = encoded | {"meta", "meta in JSON", "stack", "line of a stack"}
    payloads |= {"log", "log in pieces", "output", "args of a filter"}
    names = {
        "job_id": [str(one) for one in ran],
        "worker_id": [str(hands.me.worker_id)],
        "action_id": [str(action)],
        "name": ["nightly", "args", "checkpoint", "result"],
        "verb": ["cancel", "requeue", "discard"],
        "path": ["nowhere"],
    }
    return World(secrets, names, payloads, encoded)


@pytest.fixture
async def role(pg_url: str) -> AsyncIterator[str]:
    """The address of the store for a role that may connect, and nothing else."""
    owner = await asyncpg.connect(pg_url)
    await owner.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    yield f"postgresql://{ROLE}@{pg_url.partition('@')[2]}"
    await owner.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
    await owner.close()
