"""Claims jobs, holds them and reports their ends.

exchange.py     the hot path: hands in ends and claims the next jobs in one round trip
in_flight.py    holds every token from its claim to the store's answer about its end
evidence.py     completes the crash report of an attempt, and redacts it
pacing.py       decides when the next trip is made, and which of many idle workers makes it
prefetch.py     decides how many attempts are claimed before there is a slot, and holds them
pauses.py       starts no paused job, and acknowledges pauses
units.py        counts what a worker has and its tasks use, such as GPUs
until_empty.py  stops a worker that has nothing left to claim, if it is to leave then
checkpoints.py  writes checkpoints, progress and output to the store, many in one trip
stacks.py       shows where attempts are, when a person asks
dead_jobs.py    reclaims orphans; reports each job that died, once, and attempts whose process died
counters.py     counts how attempts ended, and writes that once a minute
"""
