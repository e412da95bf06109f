"""The worker: claims jobs, holds their lease, talks to the store. It runs no user code.

worker.py      a worker's life: register, serve, drain, leave
service.py     the one loop of all duties: pauses, wake-ups, errors, the end
condition.py   which duty fails, and when that is the end of the worker
base.py        the protocols between the duties and what runs the attempts
assemble.py    puts a worker together from its parts
in_process.py  a worker in the caller's own process: `async with app.worker()`
lease/         the registration, its lease, and the signs of life
claims/        what is claimed, held, and handed in
runners/       the processes that run attempts
maintenance/   what each worker does for the whole store
"""
