"""Answer what people, pages and programs ask of a store, and do what people ask for.

queries, acting, bulk, verify and doctor/gather read or write a store; liveness checks lock files;
the rest is pure. The command line and the page decide how to show an answer.

queues.py        queues and their lanes: what waits, who takes it, what hinders it
queries.py       reads what one answer needs: jobs by phase, one job, workers, schedules
deaths.py        dead jobs in groups with an example each, and shared deaths
stacks.py        asks where a running job is, and waits for the answer
acting.py        acts on named jobs, workers and schedules, each with its record
bulk.py          acts on all jobs that match a filter: a preview, then bounded steps
records.py       the actions of people, as documents
documents.py     phases, and the JSON documents of the command line: a contract
row.py           a job as programs see it
availability.py  which workers can take what: the same rules for why, stats and doctor
liveness.py      workers whose lock file on this machine is free: they are dead
why.py           why a job is where it is, and what would move it
waiting.py       why a queued job does not run yet
hindrances.py    why no worker can take a job that is due, in words
explanation.py   the facts about one job, and the answer of why: the values
pauses.py        pauses, waits for workers to acknowledge it, and describes what is paused
limits.py        what a job waits for under limits, in words; limits as documents
flows.py         flows, walked from one of their jobs: layers, what failed, what a retry runs
calls.py         arguments in lists, as a person would write them
sentences.py     parts of the sentences of why: workers, ends, times and names
schedules.py     a schedule as programs and screens see it, and the jobs of triggers and backfills
stats.py         the numbers of a store as one document
lookup.py        a job or a worker by an id, a token, a key or a name
hiding.py        replaces the matches of --hide and --hide-key in one text
covering.py      which columns of a row a reader may see; applies hiding.py to their texts
flight.py        the flight record of a job: all that a store has about it, in one file
overview.py      what needs attention, and how the queues stand
history.py       the workers' counts, step by step, for sparklines and programs
tasks.py         tasks: how attempts end, how long they take, which releases know them
system.py        the store itself: its surroundings, its schema, the doctor's findings
verify.py        checks the history of a store against the guarantees, job by job
doctor/          checks of a store, its workers and this machine, with what to do
"""
