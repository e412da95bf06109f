"""Keeps a worker's registration, the lease on it, and its signs of life.

registration.py  takes, renews, loses and retakes the lease
heartbeat.py     sends the heartbeat, on a separate thread, loop and connection
presence.py      holds the lock in the database by which other hosts notice a death
last_will.py     lets the tether report the worker's death to the store
"""
