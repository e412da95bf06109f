"""What people, pages and programs ask of a store, and what people do through it.

What reads or writes a store is in queries, acting, bulk, verify and doctor/gather; liveness looks
at lock files; the rest is pure. How an answer looks is for the command line or a page.

queues.py        queues and their lanes: what waits, who takes it, what hinders it
queries.py       what is read for one answer: jobs by phase, one job, workers, schedules
deaths.py        what ended badly: dead jobs in groups with an example each, shared deaths
stacks.py        asks where a running job is, and waits for the answer
acting.py        acts on jobs, workers and schedules that are named, each with its record
bulk.py          acts on all jobs that match a filter: a preview, then bounded steps
records.py       what people did, as documents
documents.py     phases, and the JSON documents of the command line: a contract
row.py           a job as programs see it
availability.py  which workers can take what: the same rules for why, stats and doctor
liveness.py      workers whose lock file on this machine is free: they are dead
why.py           why a job is where it is, and what would move it
waiting.py       why a queued job does not run yet
hindrances.py    why no worker can take a job that is due, in words
explanation.py   what is known of one job, and the answer of why: the values
pauses.py        pauses, waits for workers to acknowledge it, and says what is paused
calls.py         arguments in lists, as a person would write them
sentences.py     parts of the sentences of why: workers, ends, times and names
schedules.py     a schedule as programs and screens see it, and the jobs it is asked for
stats.py         the numbers of a store as one document
lookup.py        a job or a worker by an id, a token, a key or a name
overview.py      what needs attention, and how the queues stand
history.py       what workers have counted, step by step, for sparklines and programs
tasks.py         tasks: how attempts end, how long they take, which releases know them
system.py        the store itself: what it stands on, its schema, what the doctor finds
verify.py        checks the history of a store against the guarantees, job by job
doctor/          checks of a store, its workers and this machine, with what to do
"""
