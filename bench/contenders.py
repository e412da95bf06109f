"""Who is measured: each line of the tables, its program, its environment and its settings.

Peers run at the best settings that their documentation names and that were seen to help here;
where the defaults were as good, the defaults stand.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

POSTGRES, SQLITE, REDIS = "postgres", "sqlite", "redis"
SECONDS = 3.0  # that a drain should take, at least: that decides how many jobs the slow ones get
LEAST_JOBS = 300


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        name: as the tables show it.
        program: the adapter in bench/peers.
        store: where its jobs live.
        speed: jobs per second, about, of a drain by one worker: for the number of jobs and the
            estimate of the time; no measurement depends on it.
        settings: what was set, and what differs from the others in what it promises.
        environment: requirements/NAME.txt, or "": this one.
        package: its name there, where that differs from the environment's.
        variables: of the environment of its processes.
        bulk: whether it can enqueue many at once.
        workers: with how many workers it is drained.
        batch: of a floor: jobs in a statement. A floor has no worker: it drains itself.
        seldom: it is measured in the first round only: no target is about it.
        python: the version that it needs at least, where that is above ours.
    """

    name: str
    program: str
    store: str
    speed: float
    settings: str = ""
    environment: str = ""
    package: str = ""
    variables: dict[str, str] = {}
    bulk: bool = True
    workers: tuple[int, ...] = (1, 2)
    batch: int = 0
    seldom: bool = False
    python: str = ""

    def jobs(self, most: int) -> int:
        """Return how many jobs it drains: fewer where it is slow."""
        return max(min(most, LEAST_JOBS), min(most, int(self.speed * SECONDS / 100) * 100))


def ours(store: str, speed: float, settings: str, **options: str) -> Entry:
    """Return a line of Outlast: mode, function and the like as environment of the adapter."""
    words = ["Outlast", store, "in process" if options["mode"] == "inprocess" else "runners"]
    if options.get("plain"):
        words.append("plain")
    return Entry(
        name=" ".join(words),
        program="with_outlast.py",
        store=store,
        speed=speed,
        settings=settings,
        variables={f"BENCH_{name.upper()}": value for name, value in options.items()},
        workers=(1,) if options.get("plain") else (1, 2),
    )


WIDE = "concurrency 500, uvloop"
OUTLAST = [
    ours(POSTGRES, 16_000, WIDE, mode="inprocess"),
    ours(POSTGRES, 12_000, f"1 runner, {WIDE}", mode="runners"),
    ours(POSTGRES, 12_000, WIDE, mode="inprocess", plain="1"),
    ours(POSTGRES, 12_000, f"1 runner that they share, {WIDE}", mode="runners", plain="1"),
    ours(SQLITE, 15_000, WIDE, mode="inprocess"),
    ours(SQLITE, 15_000, f"1 runner, {WIDE}", mode="runners"),
    ours(SQLITE, 12_000, WIDE, mode="inprocess", plain="1"),
    ours(SQLITE, 12_000, f"1 runner that they share, {WIDE}", mode="runners", plain="1"),
]

DEFAULTS = [  # `outlast worker APP`, as users start it first
    Entry(
        name=f"Outlast {store}, default settings",
        program="with_outlast.py",
        store=store,
        speed=speed,
        settings="none set: a runner for each processor, 10 async jobs at a time in each",
        variables={"BENCH_DEFAULTS": "1"},
    )
    for store, speed in ((POSTGRES, 8000), (SQLITE, 7000))
]


def floor(store: str, driver: str, batch: int, speed: float) -> Entry:
    """Return a line of the floor: raw statements, each with a batch of jobs."""
    return Entry(
        name=f"floor {driver} {batch}",
        program=f"floor_{store}.py",
        store=store,
        speed=speed,
        settings="one connection, one fused statement a batch",
        batch=batch,
        workers=(1,),
    )


FLOOR = [
    *(floor(POSTGRES, "asyncpg", batch, speed) for batch, speed in (
        (1, 1200), (10, 7000), (100, 20_000), (500, 20_000))),
    *(floor(SQLITE, "sqlite3", batch, speed) for batch, speed in (
        (1, 3500), (10, 25_000), (100, 80_000), (500, 80_000))),
]  # fmt: skip
PEERS = [
    Entry(
        name="PgQueuer",
        program="with_pgqueuer.py",
        environment="pgqueuer",
        store=POSTGRES,
        speed=6500,
        settings="batch_size 100, pool of 5 to 20, uvloop; ends are not fenced",
    ),
    Entry(
        name="Procrastinate",
        seldom=True,
        program="with_procrastinate.py",
        environment="procrastinate",
        store=POSTGRES,
        speed=370,
        settings="20 at a time; ends are not fenced",
    ),
    Entry(
        name="Chancy",
        seldom=True,
        program="with_chancy.py",
        environment="chancy",
        store=POSTGRES,
        speed=1650,
        settings="async executor, 100 at a time, eager polling; ends are written once a second",
    ),
    Entry(
        name="Oban",
        seldom=True,
        program="with_oban.py",
        environment="oban",
        store=POSTGRES,
        speed=1500,
        settings="50 at a time, uvloop",
        python="3.12",
    ),
    Entry(
        name="Awa",
        seldom=True,
        program="with_awa.py",
        environment="awa",
        package="awa-pg",
        store=POSTGRES,
        speed=2000,
        settings="64 at a time",
    ),
    Entry(
        name="DBOS",
        seldom=True,
        program="with_dbos.py",
        environment="dbos",
        store=POSTGRES,
        speed=770,
        settings="looks every 50 ms",
        bulk=False,
    ),
    Entry(
        name="Absurd",
        seldom=True,
        program="with_absurd.py",
        environment="absurd",
        package="absurd-sdk",
        store=POSTGRES,
        speed=600,
        settings="50 at a time, looks every 50 ms",
        bulk=False,
    ),
    Entry(
        name="Huey",
        program="with_huey.py",
        environment="huey",
        store=SQLITE,
        speed=4500,
        settings="1 thread, fsync; a job is deleted when it is taken: lost if its worker dies",
        bulk=False,
    ),
    Entry(
        name="firm-queue",
        seldom=True,
        workers=(1,),
        program="with_firm.py",
        environment="firm",
        package="firm-queue",
        store=SQLITE,
        speed=220,
        settings="20 threads, looks every 10 ms",
        bulk=False,
    ),
    Entry(
        name="Dramatiq",
        seldom=True,
        workers=(1,),
        program="with_dramatiq.py",
        environment="dramatiq",
        store=REDIS,
        speed=2200,
        settings="8 threads, 200 ahead",
        bulk=False,
    ),
    Entry(
        name="Celery",
        seldom=True,
        workers=(1,),
        program="with_celery.py",
        environment="celery",
        store=REDIS,
        speed=700,
        settings="1 thread, 64 ahead; a taken job counts as done",
        bulk=False,
    ),
    Entry(
        name="RQ",
        seldom=True,
        workers=(1,),
        program="with_rq.py",
        environment="rq",
        store=REDIS,
        speed=260,
        settings="SimpleWorker: no process for each job",
    ),
    Entry(
        name="SAQ",
        seldom=True,
        workers=(1,),
        program="with_saq.py",
        environment="saq",
        store=REDIS,
        speed=1170,
        settings="100 at a time",
        bulk=False,
    ),
    Entry(
        name="arq",
        seldom=True,
        workers=(1,),
        program="with_arq.py",
        environment="arq",
        store=REDIS,
        speed=1080,
        settings="100 at a time, looks every 50 ms",
        bulk=False,
    ),
]
NOTHING_SET = {"BENCH_DEFAULTS": "1"}
DEATHS = [  # `bench deaths`
    *DEFAULTS,
    *(
        Entry(
            name=name,
            program=f"with_{environment}.py",
            environment=environment,
            store=store,
            speed=0,
            settings=settings,
            variables=NOTHING_SET | variables,
        )
        for name, environment, store, settings, variables in (
            ("Celery", "celery", REDIS, "none set", {}),
            (
                "Celery, acks_late",
                "celery",
                REDIS,
                "task_acks_late, task_reject_on_worker_lost",
                {"BENCH_LATE": "1"},
            ),
            ("RQ", "rq", REDIS, "Retry(max=3) on the job", {}),
            ("arq", "arq", REDIS, "none set", {}),
            ("Huey", "huey", SQLITE, "retries=3 on the task", {}),
        )
    ),
]
ALL_ENTRIES = [*OUTLAST, *DEFAULTS, *FLOOR, *PEERS]


def chosen(only: Sequence[str], among: Sequence[Entry] = ALL_ENTRIES) -> list[Entry]:
    """Return those with one of these texts in the name; all if there are none."""
    texts = [text.lower() for text in only]
    return [each for each in among if not texts or any(text in each.name.lower() for text in texts)]
