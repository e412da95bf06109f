"""``outlast`` whose worker waits for less long where users' wait for minutes or many seconds."""

from __future__ import annotations

from outlast.cli import main
from outlast.worker.claims import exchange
from outlast.worker.maintenance import reaper
from outlast.worker.runners import process, watchdog

exchange.LEFT_OPEN_SECONDS = 2.0
reaper.SLACK_SECONDS = 6.0
process.GROUP_EMPTY_SECONDS = 2.0
watchdog.HELD_SECONDS = 1.0

if __name__ == "__main__":
    main()
