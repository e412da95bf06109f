"""The command of the app.

commands/  manage.py outlast
"""
