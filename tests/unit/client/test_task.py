"""Tasks: every option is checked where it is written, every call where it is made."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import re
import sys
import typing
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

import outlast
from outlast.client.task_options import make_policy
from outlast.errors import BadArguments, ConfigError
from outlast.model.job import OF_ONE_JOB, Policy
from tests.cases import each_case


@pytest.fixture
def app(sqlite_url):
    return outlast.App(sqlite_url)


@pytest.fixture
def mail(app):
    @app.task
    async def mail(to: str, urgent: bool = False) -> int:
        """Send one."""
        return len(to)

    return mail


async def test_calling_a_task_calls_the_function(app, mail):
    @app.task
    def plain(number: int) -> int:
        return number + 1

    assert plain(1) == 2
    assert await mail("abc") == 3


def test_a_task_knows_its_function(app, mail):
    assert (mail.name, mail.is_async, mail.own_runner, mail.returns) == ("mail", True, False, int)
    assert mail.__doc__ == "Send one."
    assert app.tasks == {"mail": mail}


def test_plain_functions_have_their_runner_to_themselves_unless_told_otherwise(app):
    def plain() -> None:
        pass

    assert app.task(plain).own_runner is True
    assert app.task(name="b", own_runner=False)(plain).own_runner is False


def test_options_become_the_policy_and_the_place_of_its_jobs(app):
    @app.task(
        name="a.b",
        queue="slow",
        retries=0,
        max_losses=2,
        backoff_first=timedelta(seconds=1),
        backoff_max=5,
        timeout=timedelta(hours=1),
        stall_timeout=30.5,
        unresponsive_timeout=7,
        cancel_grace=0,
        keep_running_when_isolated=True,
        priority=-100,
        aliases=["old", "older"],
    )
    def task() -> None:
        pass

    job = task.call().job
    assert task.aliases == ("old", "older")
    assert app.find("older") is task
    assert (job.task, job.queue, job.priority) == ("a.b", "slow", -100)
    assert job.policy == Policy(
        retries=0,
        max_losses=2,
        backoff_first=1.0,
        backoff_max=5.0,
        timeout=3600.0,
        stall_timeout=30.5,
        unresponsive_timeout=7.0,
        cancel_grace=0.0,
        keep_running_when_isolated=True,
    )


def test_the_tags_that_a_task_requires_are_its_own_and_no_job_changes_them(app):
    @app.task(requires=["gpu", "eu", "gpu"])
    def task() -> None:
        pass

    assert task.requires == {"gpu", "eu"}
    with pytest.raises(ConfigError, match=r"requires \(here: @app.task"):
        task.using(requires=[])


@each_case(
    ("options", "says"),
    [
        ({"name": ""}, "a task's name"),
        ({"name": "a b"}, "a task's name"),
        ({"name": "a" * 201}, "a task's name"),
        ({"name": 5}, "a task's name"),
        ({"queue": "a,b"}, "queue"),
        ({"queue": "a\x00"}, "queue"),
        ({"queue": "\ud800"}, "queue"),
        ({"queue": None}, "queue"),
        ({"retries": -1}, "retries must be a whole number from 0"),
        ({"retries": 1.5}, "retries must be a whole number"),
        ({"retries": True}, "retries must be a whole number"),
        ({"max_losses": -1}, "max_losses"),
        ({"backoff_first": -1}, "backoff_first"),
        ({"backoff_first": 60, "backoff_max": 30}, "backoff_max .30 s. is below backoff_first"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"timeout": "60"}, "timeout must be seconds or a timedelta"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"stall_timeout": timedelta(0)}, "stall_timeout must be above 0"),
        ({"unresponsive_timeout": 0}, "unresponsive_timeout must be above 0"),
        ({"cancel_grace": -1}, "cancel_grace must be seconds from 0"),
        ({"cancel_grace": None}, "cancel_grace must be seconds or a timedelta, not None"),
        ({"keep_running_when_isolated": 1}, "keep_running_when_isolated must be True or False"),
        ({"priority": 101}, "priority must be a whole number from -100 to 100"),
        ({"aliases": "old"}, r"aliases must be a list of names, such as \['old'\]"),
        ({"aliases": [""]}, "an alias"),
        ({"aliases": 5}, r"aliases must be a list of names, such as \[5\]"),
        ({"aliases": ["outlast.shell"]}, "outlast.shell is Outlast's own task"),
        ({"name": "outlast.shell"}, "outlast.shell is Outlast's own task"),
        ({"own_runner": 1}, "own_runner"),
        ({"checkpoint": 5}, "checkpoint of task task must be a type, such as a dataclass"),
        ({"requires": "gpu"}, r"requires must be a list of tags, such as \['gpu'\]"),
        ({"requires": 5}, "requires must be a list of tags"),
        ({"requires": ["a b"]}, "a tag must be a text"),
        (
            {"retries": -1, "queue": "a b", "timeout": "x", "priority": 0.5, "own_runner": 1},
            "retries must .*; queue must .*; timeout must .*; priority must .*; own_runner must",
        ),
        ({"retry": 3}, r"a task has no option retry \(here: retries\)$"),
        ({"max_payload": 3}, "a task has no option max_payload; choose from: aging, "),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_the_reason(app, options, says):
    def task() -> None:
        pass

    with pytest.raises(ConfigError, match=says):
        app.task(**options)(task)
    assert app.tasks == {}


def test_each_limit_of_a_job_is_an_option_of_its_task_with_a_check_for_its_type():
    """So that a limit is declared with its default in one place, and cannot be left unchecked."""
    options = typing.get_type_hints(outlast.TaskOptions)
    limits = typing.get_type_hints(Policy)
    assert limits.keys() - OF_ONE_JOB <= options.keys()
    assert not OF_ONE_JOB & options.keys()
    for name in limits.keys() - OF_ONE_JOB:
        kind = limits[name]
        assert (options[name] | timedelta) == (kind | timedelta), name
        with pytest.raises(ConfigError, match=f"^{name} must be"):
            make_policy({name: "odd"})  # type: ignore[misc]
    assert outlast.TaskOptions.__required_keys__ == frozenset()


def test_the_docs_of_the_options_tell_the_defaults_of_the_limits():
    entries = re.split(r"\n    (?=\w+: )", inspect.getdoc(outlast.TaskOptions) or "")
    told = {entry.partition(":")[0]: " ".join(entry.split()) for entry in entries}
    for field in msgspec.structs.fields(Policy):
        if field.name in OF_ONE_JOB:
            continue
        wanted = {None: "default: no limit", False: "default: no"}
        usual = wanted.get(field.default) or f"default {field.default:g}"
        assert usual in told[field.name], field.name


async def agenerator() -> Any:
    yield 1


def generator() -> Any:
    yield 1


class Callable:
    async def __call__(self, number: int) -> int:
        return number


@each_case(
    ("fn", "says"),
    [
        (Callable, "not of the class Callable"),
        (agenerator, "agenerator is a generator"),
        (generator, "generator is a generator"),
        (lambda: None, "has no name of its own"),
        (functools.partial(print, 1), "has no name of its own"),
        (Callable(), "has no name of its own"),
        (staticmethod(print), "is made of a function"),
        (5, "is made of a function"),
        ("mail", "is made of a function"),
    ],
)
def test_only_functions_can_be_tasks(app, fn, says):
    with pytest.raises(ConfigError, match=says):
        app.task(fn)


def test_any_callable_with_a_name_can_be_a_task(app):
    assert app.task(name="a")(lambda: 5)() == 5
    assert app.task(name="b")(Callable()).is_async
    assert app.task(name="c")(functools.partial(Callable().__call__, 1)).is_async


def test_a_cell_of_a_notebook_may_define_its_task_again(app, monkeypatch):
    def define(module, result):
        def fit():
            return result

        fit.__module__ = module
        return app.task(fit)

    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    define("__main__", 1)
    define("__main__", 2)
    assert app.tasks["fit"]() == 2
    with pytest.raises(ConfigError, match="another task is already called 'fit'"):
        define("elsewhere", 3)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "fits.py", raising=False)
    with pytest.raises(ConfigError, match="another task is already called 'fit'"):
        define("__main__", 4)


def test_two_tasks_of_one_name_are_refused(app, mail):
    with pytest.raises(ConfigError, match="another task is already called 'mail': give name=") as e:
        app.task(name="mail")(lambda: None)
    assert f"{mail.fn.__module__}.{mail.fn.__qualname__} or {__name__}.test_two" in str(e.value)
    with pytest.raises(ConfigError, match="another task is already called 'mail'"):
        app.task(name="letter", aliases=["mail"])(lambda: None)
    with pytest.raises(ConfigError, match="mail is already a task"):
        app.task(mail)
    assert list(app.tasks) == ["mail"]


def test_a_module_that_is_reloaded_without_that_of_its_app_is_told_so(app, mail):
    with pytest.raises(ConfigError, match="defined twice; if its module was reloaded, reload that"):
        app.task(name="mail")(mail.fn)


# ----------------------------------------------------------------------------------- using


def test_using_changes_only_the_placement_of_the_job(mail):
    job = (
        mail.using(delay=timedelta(minutes=1), queue="q", priority=7, key="k", tenant="t")
        .call("x")
        .job
    )
    assert (job.delay, job.queue, job.priority, job.key, job.tenant) == (60.0, "q", 7, "k", "t")
    assert job.args == '{"to":"x"}'
    plain = mail.call("x").job
    assert (plain.delay, plain.queue, plain.key) == (0.0, "default", None)


def test_a_job_expires_after_a_time_or_at_one(mail):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    jobs = [
        mail.using(expires=timedelta(hours=1)).call("x").job,
        mail.using(expires=60).using(expires=at).call("x").job,
        mail.using(expires=at).using(expires=60, delay=30).call("x").job,
        mail.using(expires=60).using(priority=3).call("x").job,
        mail.call("x").job,
    ]
    expiries = [(job.expires, job.expires_at) for job in jobs]
    assert expiries == [
        (3_600.0, None), (None, at.timestamp()), (60.0, None), (60.0, None), (None, None)
    ]  # fmt: skip


def test_a_job_can_have_notes_beside_the_limits_of_its_task(mail):
    noted = mail.using(meta={"trace": "x"}).call("x").job
    assert noted.policy == msgspec.structs.replace(mail.policy, meta='{"trace":"x"}')
    assert mail.call("x").job.policy is mail.policy
    assert mail.using(meta={"a": 1}).using(meta={"b": 2}).call("x").job.policy.meta == '{"b":2}'


def test_a_job_can_have_labels(mail):
    assert mail.using(labels=["a", "b", "a"]).call("x").job.policy.labels == ("a", "b")
    assert mail.using(labels=["a"]).using(labels=["b"]).call("x").job.policy.labels == ("b",)
    assert mail.call("x").job.policy.labels == ()


def test_a_task_and_a_job_say_how_long_rows_are_kept():
    app = outlast.App()

    @app.task(keep=timedelta(hours=1))
    async def refresh() -> None:
        pass

    assert refresh.call().job.policy.keep == 3_600.0
    at_once = refresh.using(keep=0, meta={"a": 1})
    assert at_once.call().job.policy.keep == 0.0
    assert at_once.call().job.policy is at_once.call().job.policy  # so that many are stored as one
    assert at_once.using(keep=timedelta(days=1)).call().job.policy.keep == 86_400.0
    wrongs: list[Any] = [-1, "1h", True]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="keep must be seconds"):
            refresh.using(keep=wrong)
        with pytest.raises(ConfigError, match="keep must be seconds"):
            app.task(name="wrong", keep=wrong)(refresh.fn)


def test_all_jobs_of_a_task_can_expire():
    app = outlast.App()

    @app.task(expires=timedelta(minutes=1))
    async def refresh() -> None:
        pass

    assert refresh.call().job.expires == 60.0
    assert refresh.using(expires=5).call().job.expires == 5.0
    with pytest.raises(ConfigError, match="expires must be later than the job is due"):
        refresh.using(delay=60)


def test_a_later_delay_or_time_replaces_an_earlier_one(mail):
    at = datetime(2030, 1, 2, tzinfo=UTC)
    first = mail.using(delay=60).using(at=at).call("x").job
    second = mail.using(at=at).using(delay=60).call("x").job
    assert (first.delay, first.run_at) == (0.0, at.timestamp())
    assert (second.delay, second.run_at) == (60.0, None)
    assert mail.using(delay=60).using(priority=3).call("x").job.delay == 60.0


@each_case(
    ("options", "says"),
    [
        ({"delay": -1}, "delay must be seconds from 0"),
        ({"delay": "1"}, "delay must be seconds or a timedelta"),
        ({"delay": 1e300}, "delay must be seconds from 0"),
        ({"meta": ["x"]}, "meta must be a dict"),
        ({"meta": {1: "x"}}, "meta must be a dict"),
        ({"meta": {"x": len}}, "meta cannot be stored as JSON"),
        ({"meta": {"x": "y" * 4_096}}, "meta has 4104 bytes of JSON; 4096 are allowed"),
        ({"labels": "import"}, r"labels must be a list of names, such as \['import'\]"),
        ({"labels": ["a b"]}, "a label must be a text"),
        ({"labels": [f"l{n}" for n in range(9)]}, "labels has 9 names; 8 are allowed"),
        ({"labels": ["x" * 101]}, "a label has 101 characters; 100 are allowed"),
        ({"expires": 0}, "expires must be above 0 seconds"),
        ({"expires": "1"}, "expires must be seconds or a timedelta"),
        ({"expires": datetime(2030, 1, 1)}, "expires must know its time zone"),  # noqa: DTZ001
        ({"delay": 60, "expires": 60}, "expires must be later than the job is due"),
        (
            {"at": datetime(2030, 1, 1, tzinfo=UTC), "expires": datetime(2030, 1, 1, tzinfo=UTC)},
            "expires must be later than the job is due",
        ),
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "one of delay, at and debounce"),
        ({"at": datetime(2030, 1, 1)}, "must know its time zone"),  # noqa: DTZ001
        ({"at": 1893456000}, "at must be a datetime"),
        ({"queue": ""}, "queue"),
        ({"priority": -101}, "priority"),
        ({"key": ""}, "key must be a text of 1 to 500"),
        ({"key": "a\x00"}, "key"),
        ({"key": "k" * 501}, "key"),
        ({"tenant": "\udc00"}, "tenant"),
        ({"tenant": 5}, "tenant"),
        ({"debounce": 5}, r"need a key: using\(key=…\)"),
        ({"key": "k", "debounce": 5, "delay": 1}, "one of delay, at and debounce"),
        ({"key": "k", "debounce": 0}, "debounce must be above 0 seconds"),
        ({"key": "k", "debounce": 5, "debounce_max": 4}, r"4 s\) is below debounce \(5 s"),
        ({"key": "k", "debounce_max": 4}, "needs debounce"),
        ({"key": "k", "until": "end"}, "until must be 'start', not 'end'"),
        ({"key": "k", "on_conflict": "skip"}, "on_conflict must be 'replace', not 'skip'"),
        ({"key": "k", "until": "start", "after": [1]}, "cannot be combined with after"),
        ({"once_per": 5}, r"need a key: using\(key=…\)"),
        ({"key": "k", "once_per": 0}, "once_per must be above 0 seconds"),
        ({"key": "k", "once_per": 5, "debounce": 5}, "cannot be combined with debounce"),
    ],
)
def test_invalid_queues_and_priorities_are_refused(mail, options, says):
    with pytest.raises(ConfigError, match=says):
        mail.using(**options)


def test_a_wrong_call_fails_before_anything_is_stored(mail, sqlite_url, tmp_path):
    with pytest.raises(BadArguments, match="argument 'to' of task mail"):
        mail.enqueue_sync(5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wall", "fold", "utc"),
    [
        ("2026-03-29T02:30", 0, "2026-03-29T01:30Z"),  # it is skipped: this is 3:30
        ("2026-03-29T02:30", 1, "2026-03-29T00:30Z"),
        ("2026-10-25T02:30", 0, "2026-10-25T00:30Z"),  # it comes twice
        ("2026-10-25T02:30", 1, "2026-10-25T01:30Z"),
    ],
)
def test_a_time_that_the_clocks_skip_or_repeat_is_one_moment(mail, wall, fold, utc):
    at = datetime.fromisoformat(wall).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    assert mail.using(at=at).call("x").job.run_at == datetime.fromisoformat(utc).timestamp()


@outlast.App("sqlite:///nowhere.db").task
def sent_abroad(page: int) -> int:
    return page


def test_a_task_is_pickled_by_the_name_of_its_function():
    """For a pool of processes, which imports the module."""
    assert pickle.loads(pickle.dumps(sent_abroad)) is sent_abroad
    assert copy.deepcopy(sent_abroad) is sent_abroad


def test_a_task_that_its_module_does_not_have_is_not_pickled(mail):
    with pytest.raises((pickle.PicklingError, AttributeError), match="local object"):
        pickle.dumps(mail)
