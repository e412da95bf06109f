"""Runs user code in a child process, and defines the protocol between it and its worker.

main.py              the process: starts, imports the application, takes frames, runs attempts, ends
channel.py           the socket to the worker: a thread reads, any thread writes
protocol.py          the frames between worker and runner: msgpack, length-prefixed, bounded
application.py       finds the application that MODULE:APP names
execute.py           one attempt from its arguments to its end, in a runner or in process
batches.py           one call for many attempts: gathers them, gives each its own end
here.py              one call of a task without a worker, for its author and a debugger
outcomes.py          turns a task's exception into the outcome of its attempt, with a crash report
task_reuse.py        asyncio tasks that run small attempts one after the other
threads.py           plain functions in threads, handed over many at a time
stacks.py            shows where attempts are: in threads, and where coroutines wait
printing.py          sends an attempt's output with the attempt's token
tail.py              the last lines of an output, in bounded memory
process_state.py     restores what a task changed in its process before the next one runs
interruptions.py     counts the signals from outside that asked this runner to end
ticks.py             tells when this runner did not run, as in a suspended machine
garbage.py           what garbage collections visit, and when an idle runner runs one
tether.py            the process that kills runners when their worker is gone; standard library only
shell/               commands as jobs
"""
