"""Manages the processes that run attempts, on the worker's side.

pool.py            puts the pool together, and handles runners' frames
supervisor.py      keeps the number of runners: their start, replacement and end
starter.py         starts attempts: makes claim requests, lets attempts wait, sends them to runners
control.py         ends attempts, kills their runners, shows where attempts are
assignment.py      decides which runner takes which attempt
process.py         one runner: its start, messages, kill, exit, and the pool's notes on it
exits.py           turns the exit of a runner into the outcome of each attempt in it
watchdog.py        enforces the limits of attempts, and kills attempts that ignore a stop
responsiveness.py  checks whether a runner's event loop turns, and which attempt blocks it
recycling.py       replaces a runner above its limits, by the kernel's counters of memory
reload.py          replaces all runners when the application's code has changed
tags.py            finds the tasks that this worker may serve, by its tags
tether.py          the worker's end of the tether
output.py          passes on runners' output, and finds the attempt that wrote each line
"""
