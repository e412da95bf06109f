"""Outlast in frameworks: each in a folder of its own, loaded by the framework alone.

django/  an app of Django: the backend of its tasks, its migrations, its admin, manage.py outlast
"""
