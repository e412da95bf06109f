"""Commands of manage.py.

flush.py    manage.py flush: also empties Outlast's tables
outlast.py  manage.py outlast: the whole command line, on the project's store
"""
