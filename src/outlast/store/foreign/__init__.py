"""Enqueue, and complete an attempt, in the caller's own transaction.

connection.py  what can be done on a caller's connection, once it is checked
drivers.py     which driver a connection is of; SQLAlchemy and Django, which several stores share
"""
