"""Defines the rules of a job's life as pure code, which has no I/O, clock or randomness.

job.py        the states of a job, its limits, and the facts that a decision needs
lifecycle.py  decides a job's next state, the delay before its next attempt, and the budget charged
crash.py      the crash report, bounded and redacted: why an attempt ended badly
fingerprint.py  gives similar deaths one fingerprint, so that they can be counted and found
suspects.py   chooses the suspects of a shared death, and the cohort that each runs with next
schedule.py   when a schedule fires: its ticks, from a cron expression or a period
schedule_plan.py  decides which ticks of a due schedule are fired and which are missed
schedule_owed.py  counts the ticks that a pause or a change has passed over
cron.py       cron expressions: the wall times that match, and their instants in a zone
zone.py       time zones: the wall time at an instant, and the changes of the clocks
limits.py     what may run at once and start in a time: permits, streams, rates
pause.py      the pauses in force, and whether one applies to a job
watch.py      chooses the workers that watch over all others
lease.py      how long a worker trusts its lease, and when its observers declare it gone
"""
