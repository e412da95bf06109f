"""The processes that run attempts, as their worker sees them.

pool.py            puts the pool together, and takes what runners say
supervisor.py      how many runners there are: their start, replacement and end
starter.py         starts attempts: what may be claimed, what waits, what is sent where
control.py         ends attempts, kills their runners, tells where attempts are
processes.py       the processes of a runner or a command, as the kernel shows them
state.py           what the pool keeps of one runner
assignment.py      which runner takes which attempt
process.py         one runner: spawned, spoken with, killed, its death understood
startup.py         watches runners until they have imported the application
exits.py           from the way a runner ended to the outcome of each attempt in it
watchdog.py        the limits of each attempt, and stops that are not obeyed
responsiveness.py  whether a runner's event loop turns, and which attempt blocks it
recycling.py       replaces a runner above max_rss or max_jobs_per_runner
reload.py          replaces all runners when the application's code has changed
memory.py          the kernel's counters: this worker's cgroup, and /proc
tags.py            which tasks this worker may serve, by its tags
tether.py          the worker's end of the tether
printed.py         whose the lines are that a runner wrote
output.py          passes on what runners write, without waiting for its reader
"""
