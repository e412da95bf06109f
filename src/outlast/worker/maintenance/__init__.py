"""What each worker does for the whole store, and as process 1 of a container.

reaper.py     finds workers that are gone, and gives their jobs back
looks.py      which looks at all workers are this worker's
deadlines.py  ends attempts that are far above their timeout, on any worker
expirer.py    ends jobs that have expired
pruner.py     deletes what ended long ago, in bounded batches
minutes.py    writes what the worker has counted, once a minute
scheduler.py  fires schedules that are due, and declares those of the code
firing.py     the plan of a due schedule, and the jobs of its ticks
sweeper.py    announces jobs that no messenger was told of
announcer.py  what this worker publishes to its messenger
pid1.py       waits for adopted children where the worker is process 1
"""
