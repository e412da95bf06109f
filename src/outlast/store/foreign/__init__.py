"""Enqueue, and complete an attempt, in a transaction of the caller's own.

connection.py  what can be done on a caller's connection, once it is checked
drivers.py     asyncpg, psycopg, SQLAlchemy, Django, sqlite3 and aiosqlite, driver by driver
"""
