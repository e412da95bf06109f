"""All names that ``outlast`` gives its users; the package loads them when one is first used."""

from outlast.app import App, TaskDecorator
from outlast.attempt import Attempt, StopReason
from outlast.attempt_context import current
from outlast.config import WorkerOptions, WorkerSettings
from outlast.errors import (
    ApplicationError,
    BadArguments,
    BadData,
    Cancel,
    ConfigError,
    ConnectionMismatch,
    Dead,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeyInUse,
    LostLease,
    NotEncrypted,
    NotInAttempt,
    NotPermitted,
    OutlastError,
    Retry,
    ScheduleNotFound,
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
from outlast.insight.schedules import Schedule
from outlast.job import Job
from outlast.log_fields import add_job_fields
from outlast.model.crash import Crash, CrashKind, MemoryEvidence, Progress
from outlast.model.job import Policy, State
from outlast.pauses import Paused
from outlast.payloads import Compression, Encryption, PayloadCodec
from outlast.row import JobRow
from outlast.schedules import ScheduleOptions, Schedules
from outlast.store.values import Cancelled, Requeued
from outlast.task import AsyncTask, BoundTask, Call, PlainTask, Task
from outlast.task_options import TaskOptions

__all__ = [
    "App",
    "ApplicationError",
    "AsyncTask",
    "Attempt",
    "BadArguments",
    "BadData",
    "BoundTask",
    "Call",
    "Cancel",
    "Cancelled",
    "Compression",
    "ConfigError",
    "ConnectionMismatch",
    "Crash",
    "CrashKind",
    "Dead",
    "Encryption",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobRow",
    "KeyInUse",
    "LostLease",
    "MemoryEvidence",
    "NotEncrypted",
    "NotInAttempt",
    "NotPermitted",
    "OutlastError",
    "Paused",
    "PayloadCodec",
    "PlainTask",
    "Policy",
    "Progress",
    "Requeued",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "ScheduleOptions",
    "Schedules",
    "SchemaMismatch",
    "Snooze",
    "State",
    "StopReason",
    "Stopped",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "SyncInLoop",
    "Task",
    "TaskDecorator",
    "TaskOptions",
    "UnknownTask",
    "UsageError",
    "Verdict",
    "WorkerOptions",
    "WorkerSettings",
    "__version__",
    "add_job_fields",
    "current",
]

__version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("outlast")
    raise AttributeError(f"module 'outlast' has no attribute {name!r}")
