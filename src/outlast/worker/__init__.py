"""The worker: claims jobs, holds their lease, talks to the store. It runs no user code.

worker.py      a worker's life, and how its parts are connected
service.py     the one loop of all duties: pauses, nudges, errors, the end
condition.py   which duty fails, and when that is the end of the worker
base.py        what the parts of a worker ask of each other
running.py     an attempt that the worker runs
foreign_ends.py  listeners for attempts whose process has died
assemble.py    opens what a worker stands on, and makes its pool of runners
in_process.py  a worker in the caller's own process: `async with app.worker()`
lease/         the registration, its lease, and the signs of life
claims/        what is claimed, held, and handed in
runners/       the processes that run attempts
probes/        what supervisors ask over HTTP
maintenance/   what each worker does for the whole store
"""
