"""Does each worker's share of the work for the whole store, and of process 1 in a container.

reaper.py     finds workers that are gone, and attempts far above their timeout, and puts jobs back
pruner.py     deletes jobs and workers that ended long ago, and ends jobs that have expired
scheduler.py  fires due schedules, and declares the schedules of the code
announcer.py  publishes jobs that wait unpublished, and this worker's state, to its messenger
pid1.py       waits for adopted children where the worker is process 1
"""
