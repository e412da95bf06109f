"""Runs commands as jobs: for workers with ``--shell``, and ``outlast run``.

task.py            the task that runs a command, and an application with only that task
command.py         runs one command in a separate process group, and leaves no process behind
control_socket.py  lets `outlast checkpoint` and `outlast report` reach their runner
"""
