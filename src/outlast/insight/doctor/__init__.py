"""``outlast doctor``: check a store, its workers and this machine, and say how to fix them.

No check changes anything.

facts.py     the facts, and those that a store shows
host.py      the facts of this machine: lock files, Kubernetes, and what strangers could read
findings.py  what is found in the facts: the tables, and all of them in order
"""
