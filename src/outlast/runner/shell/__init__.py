"""Commands as jobs: for workers with ``--shell``, and ``outlast run``.

task.py            the task that runs a command, and the application that has no other
command.py         one command: a process group of its own, nothing of it left at its end
control_socket.py  how `outlast checkpoint` and `outlast report` reach their runner
"""
