"""Tasks as users write them, with mistakes that only a crash shows, and as they are right.

The comment at the end of a line names the mistake; ``test_crashes.py`` asks for that line. ``call``
and the functions at the end run in the process of a crash test.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import smtplib
import sqlite3
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import outlast

app = outlast.App("sqlite:///shop.db")
SERVERS = {name: int(os.environ.get(f"{name}_port", "0")) for name in ("http", "smtp")}
"""Ports on 127.0.0.1."""

ENTER = "INSERT INTO entries VALUES (?, ?)"

# -- an order import


def prepare() -> None:
    """Make what the tasks find: orders, a shop, and a database of another system."""
    Path("orders.csv").write_text("1;100\n2;250\n3;70\n")
    for name in ("shop.db", "ledger.db"):
        with closing(sqlite3.connect(name)) as db:
            db.execute("CREATE TABLE orders (number INTEGER, cents INTEGER)")
            db.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, cents INTEGER)")
            db.commit()


@contextmanager
def connected(name: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(name)) as db:
        yield db


def orders() -> list[list[str]]:
    with open("orders.csv") as file:
        return list(csv.reader(file, delimiter=";"))


@app.task
def imports_again() -> None:
    with connected("shop.db") as db:
        for order in orders():
            db.execute("INSERT INTO orders VALUES (?, ?)", order)  # mistake: imports_again
            db.commit()


@app.task
def claims_before_it_imports() -> None:
    attempt, rows = outlast.current(), orders()
    for at in range(attempt.checkpoint or 0, len(rows)):
        attempt.save_sync(at + 1)
        with connected("ledger.db") as db, db:
            db.execute(ENTER, rows[at])  # mistake: claims_before_it_imports


@app.task
def stumbles_over_itself() -> None:
    with connected("ledger.db") as db:
        for order in orders():
            with db:
                db.execute(ENTER, order)  # mistake: stumbles_over_itself


@app.task
async def starts_over() -> None:
    attempt = outlast.current()
    for at, order in enumerate(orders()):
        with connected("ledger.db") as db, db:
            db.execute("INSERT OR IGNORE INTO entries VALUES (?, ?)", order)
        await attempt.save(at + 1)  # mistake: starts_over


@app.task
def swallows_the_loss() -> None:
    attempt = outlast.current()
    for at in range(attempt.checkpoint or 0, 3):
        with suppress(Exception):
            attempt.save_sync(at)  # mistake: swallows_the_loss


@app.task
def bill(number: int) -> None:
    """Done elsewhere."""


@app.task
async def bills_twice() -> None:
    for order in orders():
        await bill.enqueue(int(order[0]))  # mistake: bills_twice


@app.task
async def notes_each_stop() -> None:
    try:
        for _ in range(3):
            outlast.current().report(0.5)
            await asyncio.sleep(0)
    finally:
        with connected("ledger.db") as db, db:
            db.execute("INSERT INTO orders VALUES (1, 1)")  # mistake: notes_each_stop


@app.task
def imports_once() -> None:
    with connected("shop.db") as db:
        db.executemany("INSERT INTO orders VALUES (?, ?)", orders())
        outlast.current().complete_in_sync(db)
        db.commit()


@app.task
async def imports_in_steps() -> None:
    attempt = outlast.current()
    for at, order in enumerate(orders()):
        with connected("shop.db") as db:
            db.execute("BEGIN IMMEDIATE")
            await attempt.step_in(db, f"order {at}", insert, db, order)
            db.commit()
        attempt.report(at / 3)


async def insert(db: sqlite3.Connection, order: list[str]) -> None:
    db.execute("INSERT INTO orders VALUES (?, ?)", order)
    await bill.using(connection=db).enqueue(int(order[0]))


@app.task
async def imports_with_keys() -> None:
    attempt, rows = outlast.current(), orders()
    for at in range(attempt.checkpoint or 0, len(rows)):
        with connected("ledger.db") as db, db:
            db.execute("INSERT OR IGNORE INTO entries VALUES (?, ?)", rows[at])
        await attempt.save(at + 1)


_kept: list[sqlite3.Connection] = []


@app.task
async def keeps_its_connections() -> None:
    assert outlast.current().checkpoint in {None, 1}
    db = sqlite3.connect("ledger.db", timeout=0.1)
    _kept.append(db)  # an attempt that is asked to stop leaves its transaction open
    db.execute("INSERT OR REPLACE INTO entries VALUES (1, 1)")
    await outlast.current().save(1)
    db.commit()


@app.task
def stamps_rows() -> None:
    with connected("ledger.db") as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, at, token)")
        row = (1, time.time_ns(), outlast.current().token)
        db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", row)


@app.task
def stamps_coarsely() -> None:
    told = Path(tempfile.gettempdir(), "calls")  # of all runs: each is in a process of its own
    calls = int(told.read_text()) + 1 if told.exists() else 0
    told.write_text(str(calls))
    with connected("ledger.db") as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, at, token)")
        db.execute("INSERT OR REPLACE INTO runs VALUES (1, ?, 0)", (calls // 3,))


# -- an ETL with files


@app.task
def appends_again() -> None:
    attempt, rows = outlast.current(), orders()
    for at in range(attempt.checkpoint or 0, len(rows)):
        with open("report.txt", "a") as file:  # mistake: appends_again
            file.write(f"{rows[at][1]}\n")
        attempt.save_sync(at + 1)


@app.task
def trusts_what_is_there() -> None:
    target = Path("report.txt")
    if not target.exists():
        target.write_text(json.dumps(orders()))  # mistake: trusts_what_is_there


@app.task
def writes_whole_files() -> None:
    target = Path("report.txt")
    if not target.exists():
        writer = threading.Thread(target=write_orders)
        writer.start()
        writer.join()
        os.replace("report.tmp", target)


def write_orders() -> None:
    with open("report.tmp", "w") as file:
        os.truncate(file.fileno(), 0)
        json.dump(orders(), file)


# -- a mailer


@app.task
def mails_again() -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", "ada@example.org", "Hello"
    mail.set_content("Thank you.")
    with smtplib.SMTP("127.0.0.1", SERVERS["smtp"]) as server:
        server.send_message(mail)  # mistake: mails_again
    outlast.current().report(1.0)


_posted: set[str] = set()


@app.task
def remembers_posts_in_memory() -> None:
    if "/mails" not in _posted:
        post("/mails")
    _posted.add("/mails")
    outlast.current().report(1.0)


def post(path: str, **headers: str) -> None:
    url = f"http://127.0.0.1:{SERVERS['http']}{path}"
    request = urllib.request.Request(url, b'{"to": "ada"}', headers)
    ask = urllib.request.urlopen
    with ask(request, timeout=10) as answer:  # mistake: posts_again, posts_never, in_memory
        assert json.load(answer) == {"sent": True}


@app.task
def posts_again() -> None:
    post("/mails")
    outlast.current().report(1.0)


@app.task
def posts_never() -> None:
    attempt = outlast.current()
    if attempt.checkpoint is None:
        attempt.save_sync("sent")
        post("/mails")


@app.task
def posts_with_a_key() -> None:
    attempt = outlast.current()
    attempt.step_sync("mail", post, "/mails", **{"Idempotency-Key": f"{attempt.job_id}-mail"})
    attempt.report(1.0)


# -- calls


def call(name: str, *, prepared: bool = True, **arguments: Any) -> outlast.Call[Any]:
    """Return a call of a task of this file."""
    if prepared:
        prepare()
    task: outlast.Task[..., Any] = globals()[name]
    return task.call(**arguments)


@app.task
def leaves(how: str) -> None:
    if how == "exit":
        os._exit(0)
    os.system("true")


@app.task
def counts(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE counts SET n = n + 1")
