"""Records of a task's own logging say which job they are about."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

import outlast
from outlast.client.log_fields import mark_records
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import Bench, as_task

bench = execute_kit.bench


@pytest.fixture
def marked(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    make = logging.getLogRecordFactory()
    mark_records()
    yield caplog
    logging.setLogRecordFactory(make)


def fields(record: logging.LogRecord) -> tuple[object, ...]:
    return record.outlast_job, record.outlast_token, record.outlast_task  # type: ignore[attr-defined]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_record_has_job_token_and_task(
    bench: Bench, marked: pytest.LogCaptureFixture, plain: bool
) -> None:
    def sell() -> None:
        logging.getLogger("shop").warning("sold out", extra={"task": "mine", "job_id": "mine"})

    await bench.outcome(as_task(bench, sell, plain=plain))
    sell()
    inside, outside = (fields(record) for record in marked.records if record.name == "shop")
    assert inside == (1, 1, "sell")
    assert outside == (None, None, None)


async def test_an_event_of_structlog_has_them_too(bench: Bench) -> None:
    told: list[dict[str, object]] = []

    def keep(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        told.append(dict(event))
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[outlast.add_job_fields, keep])

    @bench.app.task
    async def sell() -> None:
        logger.info("sold out", task="mine")

    await bench.outcome(sell)
    logger.info("outside")
    assert told == [
        {"event": "sold out", "job_id": 1, "token": 1, "task": "mine"},
        {"event": "outside"},
    ]
