"""The pages themselves, on both stores, without a browser."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from outlast import App, Encryption
from outlast.insight.facts import facts_of_crash, facts_of_job
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.payload.payloads import MARK
from outlast.store.minutes import Counted, CountKind
from outlast.store.rows import JobFilter
from outlast.store.values import Report
from outlast.web.application import encryption_in
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job
from tests.web.filled_kit import fill
from tests.web.kit import let_in, page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store

# They show what an inspector has read: test_other_pages.py asks for every page on each store.
pytestmark = pytest.mark.slow_on("postgres")


async def test_an_empty_store_says_so(store: Store) -> None:
    async with page_on(store.url) as page:
        assert "No job is stored." in await page.see("/jobs")
        assert "No worker is alive" in await page.see("/")


async def test_all_is_well_is_one_sentence(store: Store) -> None:
    hands = await Hands.on(store)
    await store.announce(hands.me, [TASK], {})
    async with page_on(store.url) as page:
        assert "Nothing: 1 worker at work, no job stuck, none dead." in await page.see("/")


async def test_each_queue_has_the_attempts_of_its_last_hour_as_a_drawing(store: Store) -> None:
    await enqueued(store, job(queue="mail"))
    hands = await Hands.on(store)
    counted = [
        Counted(kind=CountKind.ATTEMPT, queue="mail", task=TASK, outcome=outcome, jobs=number)
        for outcome, number in (("completed", 5), ("error", 2))
    ]
    await store.note_minute(hands.me.worker_id, 1, counted)
    async with page_on(store.url) as page:
        text = await page.see("/")
    assert "Attempts of queue mail: 7 ended, 2 did not complete, at most 7 a step" in text
    assert "Attempts that failed, by minute: 2" in text
    assert "Time from due to claimed" not in text, "no wait was counted"


PICKUP = (
    "Time from due to claimed, by minute: median ≤ 0.05 s, 95 % ≤ 0.05 s; in the slowest minute 3 s"
    " on average"
)


async def test_the_last_hour_of_all_queues_is_three_pictures_and_none_where_none_was_counted(
    store: Store,
) -> None:
    hands = await Hands.on(store)
    counted = [
        Counted(
            kind=CountKind.ATTEMPT, queue=queue, task=TASK, outcome=outcome, jobs=number,
            waited=3.0 * number, waits=[0, number, *[0] * 9],
        )
        for queue, outcome, number in (("mail", "completed", 5), ("post", "error", 1))
    ]  # fmt: skip
    async with page_on(store.url) as page:
        assert "The last hour" not in await page.see("/")
    await store.note_minute(hands.me.worker_id, 1, counted)
    async with page_on(store.url) as page:
        text = await page.see("/")
    told = re.findall(r'aria-label="([^"]*, by minute: [^"]*)"', text)
    assert told == [
        "Attempts that ended, by minute: 6; at most 6 a minute",
        "Attempts that failed, by minute: 1; at most 1 a minute",
        PICKUP,
    ]


async def test_a_job_without_a_worker_needs_a_hand(store: Store) -> None:
    await enqueued(store)
    async with page_on(store.url) as page:
        text = await page.see("/")
        assert "jobs wait for one" in text
        assert 'class="clear"' not in text


async def test_each_job_has_the_facts_of_the_terminal_on_its_page(store: Store) -> None:
    await fill(store)
    jobs, looked_at = await store.inspector.jobs(JobFilter()), set[str]()
    async with page_on(store.url) as page:
        for row in jobs:
            facts = facts_of_job(row)
            for one in await store.inspector.attempts(row.id):
                facts += [] if one.crash is None else facts_of_crash(one.crash, one)
            text = await page.see(f"/jobs/{row.id}")
            told = re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.+?)</dd>", text)
            assert Counter(label for label, _ in told) == Counter(
                fact.label.capitalize() for fact in facts
            )
            looked_at |= {fact.label for fact in facts}
    assert {"failures", "claimed", "at", "beside it"} <= looked_at


async def test_a_user_of_one_tenant_does_not_learn_which_jobs_ran_beside(store: Store) -> None:
    (number,) = await enqueued(store, job(tenant="acme"))
    hands = await Hands.on(store)
    await hands.hand_in(crashed(await hands.claim_one(), CrashKind.BYSTANDER))
    for tenant, number_of in ((None, 1), ("acme", 0)):
        async with page_on(store.url, judge=let_in(tenant=tenant)) as page:
            text = await page.see(f"/jobs/{number}")
            assert text.count("<dt>Beside it</dt>") == number_of, tenant


async def test_what_an_attempt_had_reported_is_shown_until_the_next_one_reports(
    store: Store,
) -> None:
    (number,) = await enqueued(store)
    hands = await Hands.on(store)
    claimed = await hands.claim_one()
    told = Report(number, claimed.token, Progress(fraction=0.4, message="page 8 of 20"))
    await store.progress([told])
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    again = await hands.claim_one()
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{number}")
        assert "page 8 of 20" in text
        assert "of attempt 1; the one that runs has reported none yet" in text
        now = Report(number, again.token, Progress(fraction=0.1, message="page 2 of 20"))
        await store.progress([now])
        page.site.reader.forget_all()
        text = await page.see(f"/jobs/{number}")
        assert "page 2 of 20" in text
        assert "page 8 of 20" not in text


async def test_the_overview_names_what_most_jobs_died_of(store: Store) -> None:
    await fill(store, ["mail", "pay"])
    (mail,) = (await store.inspector.dead_groups(JobFilter(task="mail"))).groups
    async with page_on(store.url) as page:
        text = await page.see("/")
        assert "6 jobs are dead." in text
        assert f'3 jobs of <a href="./dead/group?group={mail.fingerprint}">mail</a>' in text
        assert "in <code>shop/b.py in charge</code>" in text


async def test_the_page_of_a_dead_job_shows_why_it_died_and_what_moves_it(store: Store) -> None:
    (number,) = await enqueued(store, job(policy=Policy(retries=0), args='{"to": "ada"}'))
    hands = await Hands.on(store)
    claimed = await hands.claim_one()
    await hands.hand_in(crashed(claimed))
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{number}")
    assert 'id="why">Why</h2>' in text, "its heading says already that it is dead"
    assert text.index(">Requeue</button>") < text.index(f"outlast requeue {number}"), "click first"
    assert text.count(f"outlast requeue {number}") == 1
    assert "it broke" in text
    assert "Requeue" in text
    assert "Discard…" in text
    assert "{&#34;to&#34;: &#34;ada&#34;}" in text
    assert f"outlast requeue {number}" in text


async def test_jobs_are_filtered_by_the_url_and_paged_by_key(store: Store) -> None:
    ids = await enqueued(store, *[job(queue="mail") for _ in range(3)], job(queue="other"))
    async with page_on(store.url) as page:
        text = await page.see("/jobs", queue="mail", rows=2)
        assert f"jobs/{ids[2]}" in text
        assert f"jobs/{ids[3]}" not in text
        assert f"before={ids[1]}" in text
        older = await page.see("/jobs", queue="mail", rows=2, before=ids[1])
        assert f"jobs/{ids[0]}" in older
        assert f"jobs/{ids[1]}" not in older


async def test_the_list_of_jobs_says_what_each_is_about_and_which_time_it_shows(
    store: Store,
) -> None:
    hands = await Hands.on(store)
    written, once = '{"to":"ada"}', Policy(retries=0)
    (died, running) = await enqueued(store, *[job(args=written, policy=once)] * 2)
    await hands.hand_in(crashed((await hands.claim(2))[0]))
    (soon,) = await enqueued(store, job(args=f'{MARK}["zlib"],"{"A" * 400}"]', delay=60.0))
    (queued,) = await enqueued(store)
    async with page_on(store.url) as page:
        text = await page.see("/jobs")
    rows = [
        text.split(f'id="job-{each}"')[1].split("</tr>")[0]
        for each in (died, running, soon, queued)
    ]
    words = [re.findall(r'"soft what">(\w+)</span> <time', row) for row in rows]
    assert words == [["ended"], ["claimed"], ["due"], ["enqueued"]]
    assert "to=&#34;ada&#34;" in rows[0]
    assert "(encoded)" in rows[2]
    assert MARK.strip() not in text


async def test_the_list_of_jobs_says_what_the_dead_ones_died_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = await Hands.on(store)
    died = await enqueued(store, *[job(policy=Policy(retries=0))] * 3)
    await hands.hand_in(*[crashed(one) for one in await hands.claim(3)])
    (failed,) = await enqueued(store)
    await hands.hand_in(crashed(await hands.claim_one()))
    async with page_on(store.url) as page:
        looks: list[list[int]] = []
        kind: Any = type(store.inspector)
        ask = kind.last_ends

        async def count(self: Any, ids: list[int]) -> Any:
            looks.append(sorted(ids))
            return await ask(self, ids)

        monkeypatch.setattr(kind, "last_ends", count)
        text = await page.see("/jobs")
        await page.see("/jobs", state="retrying")
    rows = {each: text.split(f'id="job-{each}"')[1].split("</tr>")[0] for each in (*died, failed)}
    assert all("error: it broke" in rows[each] for each in died)
    assert "it broke" not in rows[failed], "it may run well the next time"
    assert looks == [sorted(died)], "one look at all of them, none where there is none"


async def test_a_filter_that_cannot_be_is_refused_with_what_to_write(store: Store) -> None:
    async with page_on(store.url) as page:
        for query in ({"state": "odd"}, {"before": "x"}, {"rows": "9999"}, {"before": "9" * 30}):
            answer = await page.get("/jobs", params=query)
            assert answer.status_code == 400, query
            assert "is not a state or phase" in answer.text or "number from 1 to" in answer.text


async def test_a_job_is_found_by_its_id_its_token_its_key_and_a_worker_by_its_name(
    store: Store,
) -> None:
    (number, keyed) = await enqueued(store, job(), job(key="order 7", queue="later"))
    hands = await Hands.on(store, "crane-1")
    claimed = await hands.claim_one()
    await hands.hand_in(crashed(claimed))
    async with page_on(store.url) as page:
        for text, target in (
            (str(number), f"./jobs/{number}"),
            (str(claimed.token), f"./jobs/{number}"),
            (" order 7 ", f"./jobs/{keyed}"),
            ("crane-1", f"./workers/{hands.me.worker_id}"),
        ):
            answer = await page.get("/go", params={"q": text})
            assert (answer.status_code, answer.headers["location"]) == (303, target), text
        assert (await page.get("/go", params={"q": "nothing"})).status_code == 404


async def test_what_is_missing_is_missing(store: Store) -> None:
    async with page_on(store.url) as page:
        for path in ("/jobs/17", "/jobs/17/payload/args", "/odd/path", "/jobs/17/cancel"):
            answer = await page.get(path)
            assert answer.status_code == 404, path
            assert "text/html" in answer.headers["content-type"]


# -- actions


async def test_a_queued_job_is_cancelled_after_a_confirmation(store: Store) -> None:
    (number,) = await enqueued(store)
    async with page_on(store.url) as page:
        assert f"Cancel job {number}?" in await page.see(f"/jobs/{number}/cancel")
        answer = await page.submit(f"/jobs/{number}/cancel", token="0", reason="not <wanted>")
        assert answer.headers["location"] == f"../../jobs/{number}?done=cancelled"
        text = await page.see(f"/jobs/{number}", done="cancelled")
        assert "It is cancelled." in text
        assert "Who did what" in text
        assert "not &lt;wanted&gt;" in text
    row = await store.inspector.job(number)
    assert row is not None
    assert row.state is State.CANCELLED
    (action,) = await store.inspector.actions()
    assert (action.actor, action.job_id, action.counts) == ("ada", number, {"cancelled": 1})


async def test_a_dead_job_is_requeued_or_discarded(store: Store) -> None:
    one, other = await enqueued(store, *[job(policy=Policy(retries=0)) for _ in range(2)])
    hands = await Hands.on(store)
    for _ in range(2):
        await hands.hand_in(crashed(await hands.claim_one()))
    async with page_on(store.url) as page:
        assert (await page.submit(f"/jobs/{one}/requeue")).status_code == 303
        assert (await page.submit(f"/jobs/{other}/discard")).status_code == 303
        again = await page.submit(f"/jobs/{one}/discard")
        assert again.status_code == 409
    row = await store.inspector.job(one)
    assert row is not None
    assert row.state is State.QUEUED
    assert await store.inspector.job(other) is None


async def test_what_is_hidden_is_not_cut_in_two_where_a_payload_is(store: Store) -> None:
    secret = "begin" + "x" * 100 + "end"
    for most in (200, 4_000):
        args = '{"text": "' + "y" * (most - 30) + f"{secret} {'z' * 9_000}" + '"}'
        (number,) = await enqueued(store, job(args=args))
    async with page_on(store.url, hide="beginx+end") as page:
        for path in ("/jobs", f"/jobs/{number}", "/api/v1/jobs"):
            assert "begin" not in await page.see(path), path
        assert "▒▒▒" in await page.see(f"/jobs/{number}")


async def test_a_large_payload_is_cut_on_the_page_and_whole_behind_its_link(store: Store) -> None:
    args = '{"n": 9007199254740993, "text": "' + "x" * 10_000 + '"}'
    (number,) = await enqueued(store, job(args=args))
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{number}")
        assert "9007199254740993" in text
        assert "x" * 5_000 not in text
        assert await page.see(f"/jobs/{number}/payload/args") == args


@pytest.mark.parametrize(
    ("required", "sealed", "plain"),
    [
        (
            True,
            "Encrypted, as the application requires.",
            "Not encrypted: the application requires it, and refuses this.",
        ),
        (
            False,
            "Encrypted. The application does not require it.",
            "Not encrypted. The application does not require it.",
        ),
    ],
)
async def test_the_page_of_a_job_says_whether_encryption_is_required(
    store: Store, required: bool, sealed: str, plain: str
) -> None:
    cipher = Encryption({"k": Encryption.make_key()}, required=required)
    app = App(store.url, payloads=[cipher])

    @app.task
    async def pay(card: str) -> None: ...

    args = app.stores.payloads.encode("args", '{"card":"' + "4111" * 9_000 + '"}')
    forged = '{"card":"aes-256-gcm:k"}'
    ids = await enqueued(
        store, job(task=pay.name, args=args), job(task=pay.name, args=forged), job(task="other")
    )
    async with page_on(store.url, encryption_of=encryption_in(app)) as page:
        assert sealed in await page.see(f"/jobs/{ids[0]}")
        assert plain in await page.see(f"/jobs/{ids[1]}")
        assert "ncrypted" not in await page.see(f"/jobs/{ids[2]}")
    async with page_on(store.url) as page:
        assert "Not encrypted" not in await page.see(f"/jobs/{ids[1]}")


async def test_a_state_in_the_url_is_a_phase(store: Store) -> None:
    """As the API and the command line call it."""
    (number,) = await enqueued(store, job())
    async with page_on(store.url) as page:
        assert f'id="job-{number}"' in await page.see("/jobs", state="queued")
        assert f'id="job-{number}"' not in await page.see("/jobs", state="dead")


async def test_who_may_see_nothing_is_not_sent_to_the_page_that_refused(store: Store) -> None:
    async with page_on(store.url, let_in([])) as page:
        answer = await page.get("/")
    assert "lacks the right view" in answer.text
    assert "Go to the first page" not in answer.text


async def test_an_attempt_that_was_handed_back_says_why(store: Store) -> None:
    hands = await Hands.on(store)
    (number,) = await enqueued(store, job(policy=Policy(retries=0)))
    back = ended(await hands.claim_one(), OutcomeKind.RELEASED, message="its runner ended early")
    await hands.hand_in(back)
    await hands.hand_in(crashed(await hands.claim_one()))
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{number}")
    assert "its runner ended early" in text
    assert (
        "1 of them returned to the queue uncharged: its budget of failures is used up (1, " in text
    )
