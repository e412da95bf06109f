"""Compares enqueuing by the API of Django's tasks with ours, on the same connection of Django.

All jobs share one open transaction, or each has its own; the two take turns job by job, so that
other load of the machine affects both. The ratio is that of the medians of one run; the target is
at most 1.3.

    python -m bench django [--rounds N] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import django
from django.conf import settings
from django.db import connection, transaction

from bench import kit
from outlast.store.backend import file_of

TARGET = 1.3
JOBS, QUICK_JOBS = 300, 30  # in one turn
TURNS = 5  # of a round


def settle(url: str) -> None:
    """Set Django up in this process, with this store as its database."""
    settings.configure(
        DATABASES={"default": _database_of(url)},
        INSTALLED_APPS=["outlast.contrib.django"],
        TASKS={"default": {"BACKEND": "outlast.contrib.django.Backend"}},
        USE_TZ=True,
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _database_of(url: str) -> dict[str, Any]:
    file = file_of(url)
    if file is not None:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
    from psycopg.conninfo import conninfo_to_dict

    known = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    own = {name: known[key] for name, key in names.items()}
    return {"ENGINE": "django.db.backends.postgresql", **own}


def measure(url: str, rounds: int, jobs: int) -> list[kit.Row]:
    """Return a row for each kind of transaction: what, ours, Django's, ratio."""
    settle(url)
    from bench.tasks_of_django import mail, native

    verbs: tuple[Verb, Verb] = (native.using(connection=connection).enqueue_sync, mail.enqueue)
    rows: list[kit.Row] = []
    for name, whole, each in (
        ("in one transaction", transaction.atomic, nullcontext),
        ("a transaction each", nullcontext, transaction.atomic),
    ):
        seen = [_in_turns(verbs, jobs, whole, each) for _ in range(rounds * TURNS)]
        ours, theirs = (statistics.median(side) for side in zip(*seen, strict=True))
        shown = (f"{seconds * 1e6:.0f} µs" for seconds in (ours, theirs))
        rows.append([name, *shown, f"{theirs / ours:.2f}"])
    return rows


Verb = Callable[..., object]
Enter = Callable[[], AbstractContextManager[Any]]


def _in_turns(
    verbs: tuple[Verb, Verb], jobs: int, whole: Enter, each: Enter
) -> tuple[float, float]:
    """Return the median seconds of each verb. They take turns job by job."""
    times: tuple[list[float], list[float]] = ([], [])
    with whole():
        for number in range(jobs):
            for seen, enqueue in zip(times, verbs, strict=True):
                began_at = time.perf_counter()
                with each():
                    enqueue("ann@example.org", number)
                seen.append(time.perf_counter() - began_at)
    return statistics.median(times[0]), statistics.median(times[1])


def main(chosen: argparse.Namespace) -> int:
    """Measure both stores, each in a process of its own; return how many miss the target."""
    with kit.server() as postgres:
        return sum(_on(kind, postgres, chosen) for kind in ("sqlite", "postgres"))


def _on(kind: str, postgres: Any, chosen: argparse.Namespace) -> int:
    from multiprocessing import get_context

    jobs = QUICK_JOBS if chosen.quick else JOBS
    with kit.fresh(kind, postgres) as (url, _), get_context("spawn").Pool(1) as apart:
        rows = apart.apply(measure, (url, chosen.rounds, jobs))
    kit.table(f"django on {kind}", ["enqueue", "ours", "Django's", "ratio"], rows, page=False)
    missed = [row for row in rows if float(row[-1]) > TARGET]
    for row in missed:
        print(f"MISSED on {kind}, {row[0]}: {row[-1]}, not {TARGET}", file=sys.stderr)
    return len(missed)
