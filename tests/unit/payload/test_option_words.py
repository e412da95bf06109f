"""An option of another queue is answered with ours."""

from __future__ import annotations

import copy
import inspect
import re

import pytest

import outlast
from outlast.client.task import BoundTask
from outlast.client.task_options import BatchOptions
from outlast.errors import BadArguments, ConfigError
from outlast.insight.filters import PHASES
from outlast.model.job import State
from outlast.payload import option_words


@pytest.fixture
def app(sqlite_url):
    return outlast.App(sqlite_url)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queues": "a"}, r"no option queues \(here: queue\)"),
        (
            {"autoretry_for": OSError, "time_limit": 9},
            r"no option autoretry_for \(here: retry_on\), time_limit \(here: timeout\)$",
        ),
    ],
)
def test_an_option_of_a_task_is_told_with_what_is_meant(app, options, says):
    with pytest.raises(ConfigError, match=says):
        app.task(**options)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda app, task, given: app.task(**given), "retrys (here: retries)"),
        (lambda app, task, given: task.using(**given), "prioritty (here: priority)"),
        (lambda app, task, given: outlast.App("sqlite:///x", **given), "notfy (here: notify)"),
        (lambda app, task, given: app.limit("x", **given), "runing (here: running)"),
        (
            lambda app, task, given: app.schedule("x", task.call(), **given),
            "evry (here: every)",
        ),
    ],
)
def test_all_wrong_options_are_told_at_once_with_the_nearest_of_ours(app, wrong, told):
    @app.task
    def mail() -> None:
        pass

    name = told.partition(" ")[0]
    with pytest.raises(ConfigError) as said:
        wrong(app, mail, {name: 1})
    assert str(said.value).endswith(f"has no option {told}"), "a list of all says nothing more"
    with pytest.raises(ConfigError) as said:
        wrong(app, mail, {name: 1, "colour": 2, "zzz": 3})
    for each in (told, "colour", "zzz; choose from: "):
        assert each in str(said.value)


def test_an_option_of_the_job_among_the_arguments_is_told_where_it_goes(app):
    @app.task
    def mail(to: str) -> None:
        pass

    with pytest.raises(BadArguments, match=r"does not take 'countdown' \(here: using\(delay=…\)\)"):
        mail.call("a", countdown=3)
    with pytest.raises(BadArguments, match=r"does not take 'colour'$"):
        mail.call("a", colour=3)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("delay", "'Task' object has no attribute 'delay' (here: enqueue(…), or enqueue_sync(…) "),
        ("colour", "'Task' object has no attribute 'colour'"),
    ],
)
def test_a_method_of_another_queue_is_answered_with_ours(app, name, says):
    @app.task
    def mail(to: str) -> None:
        pass

    for task in (mail, mail.using(priority=1)):
        with pytest.raises(AttributeError) as said:
            getattr(task, name)
        assert says in str(said.value)
        assert not hasattr(task, name)
    assert copy.copy(mail).name == "mail"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "countdown",
            "using has no option countdown (here: using(delay=…))",
        ),
        ("timeout", "timeout (here: @app.task(timeout=…))"),
        ("time_limit", "time_limit (here: in @app.task: timeout)"),
        ("retry", "retry (here: in @app.task: retries)"),
        ("ignore_result", "ignore_result (here: keep=0)"),
        ("link", "link (here: using(then=…))"),
        ("prioritty", "prioritty (here: priority)"),
    ],
)
def test_an_option_of_one_job_is_told_with_what_is_meant(app, name, says):
    @app.task
    def mail(to: str) -> None:
        pass

    with pytest.raises(ConfigError) as said:
        mail.using(**{name: 3})
    assert says in str(said.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("get", "'Job' object has no attribute 'get' (here: result(timeout=…), or result_sync("),
        ("colour", "'Job' object has no attribute 'colour'"),
    ],
)
def test_an_attribute_of_a_result_elsewhere_is_answered_with_ours(app, name, says):
    @app.task
    def mail() -> None:
        pass

    job = mail.enqueue_sync()
    with pytest.raises(AttributeError) as said:
        getattr(job, name)
    assert says in str(said.value)
    assert copy.copy(job).id == job.id


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "send_task",
            "'App' object has no attribute 'send_task' (here: find(\"name\").enqueue(…))",
        ),
        ("colour", "'App' object has no attribute 'colour'"),
    ],
)
def test_an_attribute_of_an_app_elsewhere_is_answered_with_ours(app, name, says):
    with pytest.raises(AttributeError) as said:
        getattr(app, name)
    assert says in str(said.value)


def test_an_option_of_an_app_elsewhere_is_answered_with_ours():
    options: dict[str, object] = {"broker": "redis://", "colour": 1}
    with pytest.raises(ConfigError) as said:
        outlast.App("shop", **options)  # type: ignore[arg-type]
    told = str(said.value)
    assert "App has no option broker (here: the URL of the store, as the first argument)" in told
    assert "colour; choose from: max_payload, notify, payloads, url, wakeup" in told


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (option_words.OF_TASK_OBJECTS, BoundTask),
        (option_words.OF_JOBS, outlast.Job),
        (option_words.OF_APPS, outlast.App),
    ],
)
def test_an_attribute_that_does_not_exist_is_not_hinted_at_where_it_exists(words, ours):
    assert not [name for name in words if hasattr(ours, name)]


def test_the_words_that_stand_for_those_of_other_queues_exist():
    ours = {meant.partition("=")[0].split(",")[0] for meant in option_words.OF_TASKS.values()}
    sentences = {each for each in ours if " " in each}
    assert ours - sentences <= BatchOptions.__annotations__.keys()
    assert not option_words.OF_TASKS.keys() & BatchOptions.__annotations__.keys()
    known = {*State, *PHASES}
    assert {one for each in option_words.OF_STATES.values() for one in each.split(", or ")} <= known
    assert not option_words.OF_STATES.keys() & known
    for meant in option_words.OF_CALLS.values():
        (name,) = re.findall(r"^using\((\w+)=…\)$", meant)
        assert name in inspect.signature(BoundTask.using).parameters
