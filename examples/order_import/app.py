"""A shop on SQLAlchemy and psycopg: its jobs write in its own transactions."""

import os
import signal
import time
from collections.abc import Iterator

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import outlast

app = outlast.App()  # $OUTLAST_URL


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    file: Mapped[str]
    cents: Mapped[int]


def connect() -> Engine:
    return create_engine(app.url.replace("postgresql://", "postgresql+psycopg://"))


@app.lifespan
def engine() -> Iterator[Engine]:  # one per runner: attempt.resources
    engine = connect()
    yield engine
    engine.dispose()


@app.task(backoff_first=0.1)
def import_file(file: str, lines: list[tuple[int, int]], dies: bool = False) -> int:
    """Store the orders of a file, exactly once: with them goes the completion of this job."""
    attempt = outlast.current()
    with Session(attempt.resources) as session, session.begin():
        session.add_all(Order(number=number, file=file, cents=cents) for number, cents in lines)
        session.flush()
        attempt.complete_in_sync(session, len(lines))
        if dies and attempt.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)  # all is done, and nothing is committed
    return len(lines)


@app.task(timeout=1, backoff_first=0.1)
def reserve(number: int, hangs: bool = False) -> str:
    """Short work, so it has a limit; no heartbeat of its own is needed to end it."""
    if hangs and outlast.current().number == 1:
        time.sleep(3600)
    return f"order {number} is reserved"


@app.task
def year_report(parts: int) -> int:
    """Work for hours (here: seconds), so it has none: it runs for as long as its worker lives."""
    attempt = outlast.current()
    for part in range(attempt.checkpoint or 0, parts):
        time.sleep(0.5)
        attempt.save_sync(part + 1)
        attempt.report((part + 1) / parts, f"part {part + 1} of {parts}")
    return parts
