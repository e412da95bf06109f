"""Commands of manage.py.

outlast.py  manage.py outlast: the whole command line, on the project's store
"""
