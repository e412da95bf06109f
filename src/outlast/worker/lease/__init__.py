"""A worker's registration, the lease on it, and its signs of life.

registration.py  the lease: taken, renewed, lost, and taken again
heartbeat.py     the heartbeat: a thread, a loop and a connection of its own
presence.py      keeps the lock in the database by which other hosts notice a death
last_will.py     what its tether lets the store know, should the worker be killed alone
"""
