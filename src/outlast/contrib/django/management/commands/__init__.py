"""Commands of manage.py.

flush.py    manage.py flush: empties Outlast's own tables, too
outlast.py  manage.py outlast: the whole command line, on the project's store
"""
