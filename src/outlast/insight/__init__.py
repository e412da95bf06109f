"""What people, pages and programs ask of a store. Pure, but for a look at lock files.

documents.py     phases, and the JSON documents of the command line: a contract
availability.py  which workers can take what: the same rules for why, stats and doctor
liveness.py      workers whose lock file on this machine is free: they are dead
why.py           why a job is where it is, and what would move it
sentences.py     parts of the sentences of why: workers, times and names
stats.py         the numbers of a store as one document
verify.py        checks the history of a store against the guarantees, job by job
doctor/          checks of a store, its workers and this machine, with what to do
"""
