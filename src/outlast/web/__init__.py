"""Serve the operators' page: ``dashboard`` makes the application, ``outlast web`` serves it.

A page reads and acts through ``insight``, as the command line does. Each file of
pages has a list ``ENDPOINTS``, which ``application.py`` joins, and a line in ``render.py``.

application.py  dashboard(): the settings, all endpoints, the ASGI application
endpoint.py     an endpoint: its path, its right, and one call of it, from user to answer
visit.py        one request: its user, rights, parameters and store; links and pages
site.py         the settings of one dashboard
access.py       Access: a user, the rights, the tenant
session.py      sign-in for `outlast web`: a link that works once, or a proxy's header
sign_in.py      sign-in by a password
security.py     checks hosts and sites of each request, and sets the headers of each answer
problem.py      the reason for a refusal, as a status and a sentence
reader.py       the reading side of the store: one read for all visitors
render.py       Jinja2: the filters and globals of all templates; the stylesheet and the scripts
overview.py     /: what needs attention: the doctor's findings by kind, each with its page
jobs.py         /jobs and /go
filters.py      reads the filters in the URL, for pages and the API, and refuses them
bulk.py         acts on all jobs that match: shown first, then done in steps
job.py          /jobs/17: why, attempts, payloads, output; acts on the job
flows.py        /flows: who waits for whom, as a drawing, too; cancel and retry
dead.py         /dead: dead jobs by cause
deaths.py       /deaths: how attempts end, and shared deaths
queues.py       /queues: waiting jobs and their workers; pauses
tasks.py        /tasks: outcomes, durations, and the workers that know a task
action_log.py   /actions: who did what, and how far an action on many jobs is
workers.py      /workers: the health of each, and the jobs that it holds
limits.py       what limits allow, what runs under them; set, hold and reset
schedules.py    /schedules: when each fires next
refusals.py     /refusals: writes of attempts that had lost their job
system.py       /system: the store, its schema, the doctor's findings; /metrics
api/            the API: the same for programs, in JSON
bulk_runner.py  carries out actions on many jobs, even if another process abandoned them
templates/      one for each page, base.html around them, macros.html within
static/         the stylesheet, our script, and idiomorph (its licence beside it)
"""

from __future__ import annotations

from outlast.web.access import Access, Right
from outlast.web.application import dashboard

__all__ = ["Access", "Right", "dashboard"]
