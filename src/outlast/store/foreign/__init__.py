"""Enqueue, and complete an attempt, in the caller's own transaction.

connection.py  what can be done on a caller's connection, once it is checked
drivers.py     asyncpg, psycopg, SQLAlchemy, Django, sqlite3 and aiosqlite, driver by driver
"""
