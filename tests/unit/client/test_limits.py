"""Limits as users write them: each mistake is refused where it is written."""

from __future__ import annotations

from typing import Any

import pytest

import outlast
from outlast import App, ConfigError, LimitSpec
from outlast.model.limits import Need, Per, needs_of, permit_id
from tests.cases import each_case


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-opened.db")


def call(app: App, task: dict[str, Any], **using: Any) -> Any:
    """Return the job of one call of a task with these options."""

    @app.task(**task)
    async def work(n: int = 0) -> int:
        return n

    return work.using(**using).call(1).job


def test_a_limit_is_a_count_a_rate_or_both(app: App) -> None:
    assert app.limit("a", running=3).spec == LimitSpec(running=3)
    assert app.limit("b", rate="600/min").spec == LimitSpec(spacing=0.1, burst=10.0)
    assert app.limit("c", rate="2/h").spec == LimitSpec(spacing=1800.0, burst=1.0)
    both = app.limit("d", running=1, rate="5/s", burst=7, per="tenant")
    assert both.spec == LimitSpec(running=1, spacing=0.2, burst=7.0, per=Per.TENANT)
    assert list(app.limits.declared) == ["a", "b", "c", "d"]
    assert repr(both) == "<Limit d>"


@each_case(
    ("options", "words"),
    [
        ({}, "running=20"),
        ({"running": -1}, "running"),
        ({"running": True}, "running"),
        ({"rate": "lots"}, "600/min"),
        ({"running": 1, "burst": 3}, "burst belongs to a rate"),
        ({"rate": "1/s", "burst": 0}, "burst"),
        ({"running": 1, "per": "user"}, "'tenant' or 'limit_key'"),
        ({"max_concurrency": 3}, "max_concurrency \\(here: running\\)$"),
        ({"rate_limit": "1/s"}, "rate_limit \\(here: rate\\)$"),
        ({"running": 1, "colour": "red"}, "colour; choose from: running, rate, burst, per"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        app.limit("a", **options)


def test_two_limits_of_one_name_are_refused(app: App) -> None:
    app.limit("a", running=1)
    with pytest.raises(ConfigError, match="another limit is already called 'a': use that"):
        app.limit("a", running=2)


@pytest.mark.parametrize("limits", ["a", ["a"], 7, [None]])
def test_a_task_takes_limits_and_not_their_names(app: App, limits: Any) -> None:
    app.limit("a", running=1)
    with pytest.raises(ConfigError, match=r"app\.limit"):
        call(app, {"limits": limits})


def test_a_task_names_a_limit_once_and_only_a_few(app: App) -> None:
    one = app.limit("a", running=1)
    with pytest.raises(ConfigError, match="twice"):
        call(app, {"limits": [one, one]})
    many = [app.limit(f"l{n}", running=1) for n in range(9)]
    with pytest.raises(ConfigError, match="8 are allowed"):
        call(app, {"limits": many})
    with pytest.raises(ConfigError, match="fair"):
        call(app, {"fair": "user"})


def test_a_job_without_limits_waits_in_no_stream(app: App) -> None:
    job = call(app, {})
    assert (job.stream, job.needs) == (None, None)


def test_a_job_says_which_permits_it_needs(app: App) -> None:
    openai = app.limit("openai", rate="600/min", burst=50)
    account = app.limit("account", running=2, per="tenant")
    host = app.limit("host", running=4, per="limit_key")
    job = call(
        app,
        {"limits": [openai, account, host]},
        tenant="acme",
        cost={"openai": 3},
        limit_keys={"host": "example.org"},
    )
    needs = [
        Need(permit_id("openai", ""), "openai", "", 3.0),
        Need(permit_id("account", "acme"), "account", "acme", 1.0),
        Need(permit_id("host", "example.org"), "host", "example.org", 1.0),
    ]
    assert needs_of(job.needs) == sorted(needs, key=lambda need: need.permit)
    assert job.stream is not None


def test_jobs_with_the_same_needs_share_a_stream_and_fair_ones_do_so_by_tenant(app: App) -> None:
    heavy = app.limit("heavy", running=8)

    @app.task(limits=[heavy], fair="tenant")
    async def crawl() -> None: ...

    a, b, c = (crawl.using(tenant=each).call().job for each in ("a", "a", "b"))
    assert a.stream == b.stream != c.stream
    assert crawl.using(tenant="a", priority=3).call().job.stream != a.stream
    assert crawl.call().job.stream not in {None, a.stream, c.stream}


@pytest.mark.parametrize(
    ("using", "words"),
    [
        ({}, "limit per tenant: say whose job"),
        ({"tenant": "acme"}, "limit per limit_key: say which"),
        ({"tenant": "acme", "limit_keys": {"hots": "x"}}, "no limit per='limit_key' called 'hots'"),
        ({"tenant": "acme", "limit_keys": {"host": "x"}, "cost": {"host": 2}}, "with a rate"),
        ({"tenant": "acme", "limit_keys": {"host": "x"}, "cost": {"api": 9}}, "above the burst"),
        ({"cost": {"api": 0}}, "from 0.000001"),
        ({"cost": {"api": 1e-310}}, "from 0.000001"),
        ({"cost": 3}, "such as {'openai': 3}"),
        ({"limit_keys": "example.org"}, "'host': 'example.org'"),
        ({"limit_keys": {"host": "x" * 1_001}}, "characters"),
        ({"limit_keys": {"host": ""}}, "host"),
    ],
)
def test_a_job_that_lacks_a_key_or_brings_a_wrong_one_is_refused(
    app: App, using: dict[str, Any], words: str
) -> None:
    limits = [
        app.limit("account", running=2, per="tenant"),
        app.limit("host", running=4, per="limit_key"),
        app.limit("api", rate="5/s"),
    ]
    with pytest.raises(ConfigError, match=words):
        call(app, {"limits": limits}, **using)


def test_costs_and_keys_without_limits_are_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="under no limit"):
        call(app, {}, limit_keys={"host": "x"})


def test_throttled_is_a_snooze_that_names_its_limit(app: App) -> None:
    limit = app.limit("openai", running=1)
    told = outlast.Throttled(limit, after=30)
    assert (told.limit, told.seconds, str(told)) == ("openai", 30.0, "throttled by openai for 30 s")
    assert isinstance(told, outlast.Snooze)
    assert outlast.Throttled("openai", after=1).limit == "openai"


async def test_spending_needs_an_attempt(app: App) -> None:
    limit = app.limit("openai", rate="5/s")
    with pytest.raises(outlast.NotInAttempt):
        await limit.spend(3)
    with pytest.raises(ConfigError, match="from 0"):
        await limit.spend(0)


@each_case(
    ("given", "words"),
    [
        ({}, "say what to set"),
        ({"key": "acme", "rate": "1/s"}, "only running"),
        ({"running": -1}, "running"),
        ({"rate": "soon"}, "600/min"),
        ({"burst": 0.5}, "burst"),
    ],
)
async def test_setting_what_cannot_work_is_refused(
    app: App, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await app.limits.set("openai", **given)


async def test_waiting_raises_priorities_of_a_task_with_aging(app: App) -> None:
    @app.task(aging=60)
    async def work() -> None: ...

    low, high = (work.using(priority=n).call().job for n in (-1, 5))
    assert (low.aged_by, high.aged_by) == (-60.0, 300.0)
    assert (low.priority, high.priority) == (-1, 5)
    assert low.stream == high.stream
    assert low.needs == "[]"
    wrongs: list[Any] = [0, -1, "1 min", True]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="aging must be"):
            app.task(name="other", aging=wrong)(work.fn)
