"""The settings of a worker: those that cannot work are refused, sizes can be written short."""

from __future__ import annotations

import pytest

import outlast
from outlast.base.config import WorkerSettings, parse_seconds, parse_size, worker_settings
from outlast.errors import ConfigError
from tests.cases import each_case


@each_case(
    ("settings", "says"),
    [
        ({"queue": ["a"]}, "a worker has no setting queue; choose from: queues"),
        ({"queues": "mail"}, "queues must be a list of names"),
        ({"queues": ["a b"]}, "a queue must be"),
        ({"runners": 0}, "runners must be a whole number from 1"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"heartbeat": 0}, "heartbeat must be above 0"),
        ({"heartbeat": 30}, "at least three times the heartbeat"),
        ({"lease": float("nan")}, "lease"),
        ({"drain_timeout": -1}, "drain_timeout"),
        ({"poll": 0}, "poll"),
        ({"keep_completed": -1}, "keep_completed"),
        ({"keep_workers": None}, "keep_workers"),
        ({"keep_dead": -1}, "keep_dead must be seconds from 0"),
        ({"name": "a,b"}, "name must be a text"),
        ({"max_rss": 1024}, "max_rss must be a number of bytes, at least 16777216"),
        ({"max_rss": "500M"}, "max_rss must be a number of bytes"),
        ({"max_jobs_per_runner": 0}, "max_jobs_per_runner must be a whole number from 1"),
        ({"redact": "secret"}, "redact must be a list"),
        ({"redact": ["("]}, "redact '\\('.* is not a regular expression: missing"),
        ({"redact": [1]}, "redact 1 is not a regular expression"),
        ({"redact": ["x*"]}, "matches an empty text"),
        ({"redact": ["a{99999999999999999999}"]}, "is not a regular expression"),
        ({"redact": ["(" * 5_000]}, "is not a regular expression"),
        ({"lease": 10**400}, "lease must be seconds from 0"),
    ],
)
def test_a_setting_of_a_worker_that_cannot_work_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        worker_settings(**settings)
    with pytest.raises(ConfigError, match=says):
        outlast.App().worker(**settings)


def test_a_number_too_long_for_python_to_print_is_refused():
    with pytest.raises(ConfigError, match="from 1 to 256, not this int"):
        worker_settings(runners=10**5_000)


@each_case(
    ("text", "size"),
    [
        ("500M", 500 * 2**20),
        ("2G", 2 * 2**30),
        ("1.5g", 3 * 2**29),
        ("300MiB", 300 * 2**20),
        ("20000KB", 20_000 * 1024),
        (" 33554432 ", 2**25),
    ],
)
def test_a_size_can_be_written_short(text, size):
    assert parse_size("--max-rss", text) == size


@each_case("text", ["", "M", "-5M", "5T", "1e9", "5 0M", "0x10", "9" * 30])
def test_an_invalid_size_is_refused(text):
    with pytest.raises(ConfigError, match=r"--max-rss must be a size such as 500M or 2G"):
        parse_size("--max-rss", text)


@each_case(
    ("text", "seconds"),
    [("90", 90), ("0.5", 0.5), ("90s", 90), ("15m", 900), ("1.5h", 5_400), ("7d", 604_800)],
)
def test_a_span_of_time_can_have_a_unit(text, seconds):
    assert parse_seconds(text) == seconds


@each_case("text", ["", "d", "5x", "m5", "1h30m", "7 days", "7D", "1,5h", "0x10", "nan", "inf"])
def test_an_invalid_span_of_time_is_refused(text):
    with pytest.raises(ConfigError, match="is not a span of time: write seconds, such as 90"):
        parse_seconds(text)


def test_the_default_settings_of_a_worker_are_valid():
    settings = WorkerSettings()
    assert 1 <= settings.runners <= 4
    assert (settings.concurrency, settings.heartbeat, settings.lease) == (10, 2.0, 60.0)
    assert (settings.drain_timeout, settings.poll, settings.queues) == (25.0, 1.0, [])


def test_a_worker_in_process_cannot_run_shell_commands():
    with pytest.raises(ConfigError, match="outlast worker --shell"):
        outlast.App("sqlite:///x.db").worker(shell=True)
