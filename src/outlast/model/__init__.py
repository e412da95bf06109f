"""The rules of a job's life, pure: no I/O, no clock, no randomness of their own.

job.py        states and their transitions, a job's limits, and the facts that a decision needs
lifecycle.py  what becomes of a job when an attempt ends, and who is charged
crash.py      the crash report: why an attempt ended badly, bounded and redacted
fingerprint.py  what alike deaths have in common, so that they can be counted and found
suspects.py   which attempts are suspected of a shared death, and with whom each runs next
schedule.py   when a schedule fires: its ticks, from a cron expression or a period
schedule_plan.py  which ticks of a due schedule are fired, and which are missed
schedule_owed.py  ticks that a pause or a change has passed over, and their count
cron.py       cron expressions: the wall times that match, and their instants in a zone
zone.py       time zones: what the clocks show at an instant, and where they change
pause.py      what is paused, and whether a job is
watch.py      which workers watch over all others, and when another one steps in
lease.py      how long a worker trusts its lease, and when its observers call it gone
"""
