"""What a worker claims, holds and reports.

exchange.py     the hot path: hand in what ended and claim what is next, in one round trip
ledger.py       every token from its claim to the store's answer about its end
evidence.py     completes the crash report of an attempt, and redacts it
pacing.py       when the next trip is made
peers.py        how many workers serve the same, and what those may do alternately
prefetch.py     attempts that are claimed before there is a slot for them
pauses.py       starts nothing of what is paused, and acknowledges that
wake_turns.py   lets few of many idle workers follow a wake-up
exclusive.py    empties the worker for a job that must have it to itself
superseded.py   stops attempts that another worker has closed
checkpoints.py  checkpoints and progress on their way to the store, many in one trip
job_logs.py     what attempts print, on its way to the store
stacks.py       shows where attempts are, when a person asks
trip_bytes.py   how many bytes one exchange may carry, found by trying
dead_jobs.py    reports each job that died, once, and attempts whose process died
counters.py     counts how attempts ended, in memory
"""
