"""Answers probes of Kubernetes and other supervisors over HTTP: ``outlast worker --probe-port``.

server.py  answers on a separate thread (``outlast.base.http_server``)
vitals.py  judges the worker's health from its own state: no probe asks the store
"""
