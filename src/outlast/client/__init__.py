"""The public interface: applications, tasks, jobs, attempts and schedules.

public.py           all public names of ``outlast``
app.py              App: the tasks of an application and the store of its jobs
task.py             functions as tasks: how to call and enqueue them, and set options
task_options.py     the options of tasks and of their next jobs, and their checks
batches.py          tasks whose function takes the items of many jobs in one call
error_rules.py      ``retry_on``, ``dead_on`` and ``backoff`` of a task
hooks.py            lifespan and around: generator functions as context managers
flow_parts.py       calls as parts of flows: what each waits for, RESULT
flows.py            jobs that run after others: chain, group, a flow that was enqueued
children.py         children of attempts: made once, and waited for without a slot
events.py           sends events, and lets attempts wait for them
job.py              the handle on one job: its result, its row, cancel and requeue
looks.py            read the jobs for which a loop's calls wait, in one statement
attempt.py          the attempt that runs a task: ``outlast.current()``
attempt_store.py    the store of an application, for attempts: waits while it is away
steps.py            checks, calls and encodes steps of attempts
awaiting.py         the running attempt, as jobs and limits see it
log_fields.py       job, token and task as fields of log records
schedules.py        schedules in the code and in the store
limits.py           limits in the code and in the store
back_pressure.py    the maximum of waiting jobs in a queue
pauses.py           pause and resume queues, tasks and tenants
on_commit.py        jobs stored when a session of SQLAlchemy commits, in that commit
rehearsal.py        how another release would treat the jobs of a store
stores.py           the application's URL, and a store for each event loop
"""
