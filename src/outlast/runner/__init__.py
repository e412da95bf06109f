"""The child process that runs user code, and the protocol between it and its worker.

main.py              the process: starts, imports the application, takes frames, runs attempts, ends
channel.py           the socket to the worker: a thread reads, any thread writes
protocol.py          the frames between worker and runner: msgpack, length-prefixed, bounded
settings.py          what a runner is told at its start
application.py       finds the application that MODULE:APP names
execute.py           one attempt from its arguments to its end, in a runner or in process
here.py              one call of a task without a worker, for its author and a debugger
outcomes.py          from what a task raised to the outcome of its attempt, and the report of it
task_reuse.py        asyncio tasks that run small attempts one after the other
threads.py           plain functions in threads, handed over many at a time
stacks.py            frames that carry an attempt's token, so that a stack says whose it is
coroutine_stacks.py  where a coroutine stands while it waits
printing.py          what an attempt prints goes out with its token
tail.py              the last lines of an output, in bounded memory
process_state.py     what a task changed of its process, set back before the next one
interruptions.py     signals from outside that asked this runner to end
garbage.py           keeps what was loaded at the start out of the collector's work
tether.py            the process that ends runners when their worker is gone; standard library only
shell/               commands as jobs
"""
