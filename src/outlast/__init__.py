"""Outlast: background jobs that outlast the workers running them."""

from outlast.app import App
from outlast.attempt import Attempt, current
from outlast.errors import (
    ApplicationError,
    BadArguments,
    BadData,
    Cancel,
    ConfigError,
    ConnectionMismatch,
    Dead,
    FrameError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeyInUse,
    LostLease,
    NotInAttempt,
    NotPermitted,
    OutlastError,
    Retry,
    SchemaMismatch,
    Snooze,
    Stopped,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    SyncInLoop,
    UnknownTask,
    UsageError,
    Verdict,
)
from outlast.job import Job
from outlast.row import JobRow
from outlast.task import Task

__all__ = [
    "App",
    "ApplicationError",
    "Attempt",
    "BadArguments",
    "BadData",
    "Cancel",
    "ConfigError",
    "ConnectionMismatch",
    "Dead",
    "FrameError",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobRow",
    "KeyInUse",
    "LostLease",
    "NotInAttempt",
    "NotPermitted",
    "OutlastError",
    "Retry",
    "SchemaMismatch",
    "Snooze",
    "Stopped",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "SyncInLoop",
    "Task",
    "UnknownTask",
    "UsageError",
    "Verdict",
    "__version__",
    "current",
]

__version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("outlast")
    raise AttributeError(f"module 'outlast' has no attribute {name!r}")
