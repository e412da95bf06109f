"""The migrations of the app: each makes the schema as this release of Outlast has it.

0001_schema.py  the schema, and the models of its tables
"""
