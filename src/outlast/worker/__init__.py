"""Implements the worker: it claims jobs, holds their lease, talks to the store, runs no user code.

worker.py      a worker's life, and how its parts are connected
service.py     runs each duty in a loop; decides when failing ones make the worker give up
base.py        the protocols between the parts of a worker, and the state of an attempt
foreign_ends.py  listeners for attempts whose process has died
sleeper.py     lets a worker that is not needed leave for a while
assemble.py    opens the store and files of a worker, and makes its pool of runners
in_process.py  a worker in the caller's own process: `async with app.worker()`
lease/         the registration, its lease, and the heartbeat
claims/        claims jobs, holds them, and hands in their ends
runners/       the processes that run attempts
probes.py      answers supervisors over HTTP, by the worker's own state
maintenance/   the work that each worker does for the whole store
"""
