"""Integrate Outlast with frameworks and tools: each module is loaded only by programs that use it.

django/           an app of Django: the backend of its tasks, its migrations, its admin
otel.py           traces, by the API of OpenTelemetry
trace_context.py  the context of a trace in the notes of a job
sentry.py         error reports, by the SDK of Sentry
"""
