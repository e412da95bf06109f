"""The page: what operators open. ``dashboard`` makes the application, ``outlast web`` serves it.

A page asks ``insight`` for what it shows, and acts by it, as the command line does. Each file of
pages has a list ``ENDPOINTS``, which ``application.py`` joins, and a line in ``render.py``.

application.py  dashboard(): the settings, all endpoints, the ASGI application
endpoint.py     an endpoint: its path, the right that it needs; one call of it, from who to answer
visit.py        one request: who, with which rights, on which store; links and pages
site.py         the settings of one dashboard
access.py       Access: a user, the rights, the tenant
local_peer.py   which user of this machine has a connection to the page
session.py      sign-in for `outlast web`: a link that works once, or a proxy's header
sign_in.py      sign-in by a password
guesses.py      slows down those who guess passwords
security.py     hosts, sites and headers: for each request and each answer
hiding.py       hides secrets in any text
covering.py     takes from rows, as they are read, what a visitor may not see
problem.py      why something is refused, as a status and a sentence
reader.py       the reading side of the store: one look for all who ask, kept for two seconds
rendered.py     pages rendered a moment ago, for all tabs that ask for the same
sampler.py      one look for all open pages: has something changed?
render.py       Jinja2: filters, and what all templates know
listing.py      parts that lists share: the filter in the URL, pages by key
findings.py     what the doctor finds, by kind, each with a link to its page
overview.py     /: what needs attention
jobs.py         /jobs and /go
job_filter.py   which jobs are asked for in the URL, and which searches are refused
bulk.py         what is done to all jobs that match: shown first, then done in steps
job.py          /jobs/17: why, attempts, payloads
job_logs.py     what the attempts of a job have printed, as pages show it
sparkline.py    numbers step by step as a drawing
timeline.py     the attempts of a job as a drawing
job_actions.py  what is done to one job: cancel, requeue, discard
dead.py         /dead: dead jobs by what they died of
deaths.py       /deaths: how attempts end, and shared deaths
queues.py       /queues: what waits and who takes it; pauses
tasks.py        /tasks: outcomes, durations, and who knows a task
action_log.py   /actions: who did what, and how far an action on many jobs is
workers.py      /workers: how each of them is, and what it holds
schedules.py    /schedules: when each fires next
refusals.py     /refusals: writes of attempts that had lost their job
system.py       /system: the store, its schema, what the doctor finds
metrics.py      /metrics: what a Prometheus server reads
api/            the API: the same for programs, in JSON
bulk_runner.py  carries out actions on many jobs, also those that another process abandoned
live.py         /events: hints that something has changed
assets.py       the stylesheet and the scripts
templates/      one for each page, base.html round them, macros.html within
static/         the stylesheet, our script, and idiomorph (its licence beside it)
"""

from __future__ import annotations

from outlast.web.access import Access, Right
from outlast.web.application import dashboard

__all__ = ["Access", "Right", "dashboard"]
