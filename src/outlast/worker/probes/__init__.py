"""What Kubernetes and other supervisors ask a worker over HTTP: ``outlast worker --probe-port``.

server.py  answers on a thread of its own (``outlast.base.http_server``)
vitals.py  how the worker is, from what it knows by itself: no probe asks the store
"""
