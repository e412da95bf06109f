"""Manages the processes that run attempts, on the worker's side.

pool.py            puts the pool together, and handles runners' frames
supervisor.py      keeps the number of runners: their start, replacement and end
starter.py         starts attempts: makes claim requests, lets attempts wait, sends them to runners
control.py         ends attempts, kills their runners, shows where attempts are
state.py           the pool's notes on one runner
assignment.py      decides which runner takes which attempt
process.py         one runner: its start, messages, kill, and the evidence of its exit
exits.py           turns the exit of a runner into the outcome of each attempt in it
watchdog.py        enforces the limits of attempts, and kills those that ignore a stop
responsiveness.py  checks whether a runner's event loop turns, and which attempt blocks it
recycling.py       replaces a runner above max_rss or max_jobs_per_runner
reload.py          replaces all runners when the application's code has changed
memory.py          the kernel's counters: this worker's cgroup, and /proc
tags.py            finds the tasks that this worker may serve, by its tags
tether.py          the worker's end of the tether
output.py          passes on runners' output, and finds the attempt that wrote each line
"""
