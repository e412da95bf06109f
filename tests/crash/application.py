"""The application whose tasks the workers of the crash tests run."""

from __future__ import annotations

import outlast
from harness.journal import JOURNAL

app = outlast.App()
ENOUGH = JOURNAL.with_suffix(".enough")  # counting goes on until this file exists
