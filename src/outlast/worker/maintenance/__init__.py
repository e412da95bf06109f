"""Does each worker's share of the work for the whole store, and of process 1 in a container.

reaper.py     finds workers that are gone, and puts their jobs back
looks.py      decides when this worker scans all workers
deadlines.py  ends attempts of any worker that are far above their timeout
expirer.py    ends jobs that have expired
pruner.py     deletes jobs and workers that ended long ago, in bounded batches
minutes.py    writes the worker's counts once a minute
scheduler.py  fires due schedules, and declares the schedules of the code
firing.py     makes the plan of a due schedule, and the jobs of its ticks
announcer.py  publishes jobs that wait unpublished, and this worker's state, to its messenger
pid1.py       waits for adopted children where the worker is process 1
"""
