"""Enqueues, and completes an attempt, in the caller's own transaction.

connection.py  the verbs on a caller's connection, once it is checked
drivers.py     finds the driver of a connection; SQLAlchemy and Django, which several stores share
"""
