"""Migrate the app: each migration makes the schema of this release of Outlast.

0001_schema.py  the schema, and the models of its tables
"""
