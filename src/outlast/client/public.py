"""All names that ``outlast`` gives its users; the package loads them when one is first used."""

from outlast.base.config import WorkerOptions, WorkerSettings
from outlast.client.app import App, BatchDecorator, TaskDecorator
from outlast.client.attempt import Attempt, StopReason, current, current_batch
from outlast.client.batches import BatchTask
from outlast.client.flow_parts import RESULT, RESULTS, AnyEnd, FlowPart, ended
from outlast.client.flows import Flow, FlowRun, chain, group
from outlast.client.job import Job
from outlast.client.limits import Limit, LimitOptions, Limits
from outlast.client.log_fields import add_job_fields
from outlast.client.pauses import Paused
from outlast.client.schedules import ScheduleOptions, Schedules
from outlast.client.task import AsyncTask, BoundTask, Call, PlainTask, Task
from outlast.client.task_options import BatchOptions, TaskOptions
from outlast.errors import (
    ApplicationError,
    BadArguments,
    BadData,
    Cancel,
    ConfigError,
    ConnectionMismatch,
    Dead,
    ItemErrors,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeyInUse,
    LimitNotFound,
    LostLease,
    NotEncrypted,
    NotInAttempt,
    NotPermitted,
    OutlastError,
    QueueFull,
    Retry,
    ScheduleNotFound,
    SchemaMismatch,
    Snooze,
    Stopped,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    SyncInLoop,
    Throttled,
    UnknownTask,
    UsageError,
    Verdict,
)
from outlast.insight.row import JobRow
from outlast.insight.schedules import Schedule
from outlast.model.crash import Crash, CrashKind, MemoryEvidence, Progress
from outlast.model.job import Policy, State
from outlast.model.limits import LimitSpec, Per
from outlast.payload.payloads import Compression, Encryption, PayloadCodec
from outlast.store.limits import LimitRow, PermitRow
from outlast.store.values import Cancelled, Requeued

__all__ = [
    "RESULT",
    "RESULTS",
    "AnyEnd",
    "App",
    "ApplicationError",
    "AsyncTask",
    "Attempt",
    "BadArguments",
    "BadData",
    "BatchDecorator",
    "BatchOptions",
    "BatchTask",
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
    "Flow",
    "FlowPart",
    "FlowRun",
    "ItemErrors",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobRow",
    "KeyInUse",
    "Limit",
    "LimitNotFound",
    "LimitOptions",
    "LimitRow",
    "LimitSpec",
    "Limits",
    "LostLease",
    "MemoryEvidence",
    "NotEncrypted",
    "NotInAttempt",
    "NotPermitted",
    "OutlastError",
    "Paused",
    "PayloadCodec",
    "Per",
    "PermitRow",
    "PlainTask",
    "Policy",
    "Progress",
    "QueueFull",
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
    "Throttled",
    "UnknownTask",
    "UsageError",
    "Verdict",
    "WorkerOptions",
    "WorkerSettings",
    "add_job_fields",
    "chain",
    "current",
    "current_batch",
    "ended",
    "group",
]
