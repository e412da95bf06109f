"""Defines the rules of a job's life as pure code, which has no I/O, clock or randomness.

job.py        the states of a job, its limits, and the facts that a decision needs
kinds.py      what a number or a text of a row is: a time, a payload
lifecycle.py  decides a job's next state, the delay before its next attempt, and the budget charged
crash.py      the crash report, bounded and redacted; the fingerprint of similar deaths
schedule.py   when a schedule fires: its ticks, from a cron expression or a period
schedule_plan.py  decides which ticks of a due schedule are fired, and counts those passed over
cron.py       cron expressions: the wall times that match; time zones and their changes
limits.py     what may run at once and start in a time: permits, streams, rates
pause.py      the pauses in force, and whether one applies to a job
watch.py      chooses the workers that watch over all others
standstill.py  finds the time in which a process did not run, by ticks that come late
lease.py      how long a worker trusts its lease, and when its observers declare it gone
"""
