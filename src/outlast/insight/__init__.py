"""Answer what people, pages and programs ask of a store, and do what people ask for.

queries, acting, bulk, stats, queues, verify and doctor/facts read or write a store; availability
checks lock files; the rest is pure. The command line and the page decide how to show an answer.

queues.py        queues, their lanes and tasks: what waits, who takes it, what hinders it
queries.py       reads what one answer needs: jobs by phase, one job, workers, schedules
deaths.py        dead jobs in groups with an example each, and shared deaths
stacks.py        asks where a running job is, and waits for the answer
acting.py        acts on named jobs, workers and schedules, each with its record
bulk.py          acts on all jobs that match a filter, in steps; recorded actions
resource.py      what programs see of a thing: one list of fields for documents and schemas
filters.py       the filters by which people list jobs, and act on them: one list
documents.py     phases, and the JSON documents of jobs and workers: a contract
facts.py         the short facts of a job and of a crash, as people read them
row.py           a job as programs see it
availability.py  which workers are alive and can take what: one set of rules for all answers
why.py           why a job is where it is, and what would move it
waiting.py       why a queued job does not run yet, or no worker can take it
explanation.py   the facts about one job, and the answer of why: the values
pauses.py        pauses, waits for workers to acknowledge it, and describes what is paused
limits.py        what a job waits for under limits, in words; limits as documents
flows.py         flows, walked from one of their jobs: layers, what failed, what a retry runs
calls.py         arguments in lists, as a person would write them
sentences.py     parts of the sentences of why: workers, ends, times and names
schedules.py     a schedule as programs and screens see it, and the jobs of triggers and backfills
stats.py         the numbers of a store as one document, and with workers and pauses
hiding.py        what a reader may see of a row: --hide, --hide-key and the right payload
history.py       the workers' counts, step by step, for sparklines and programs
system.py        the store itself: its surroundings, its schema, the doctor's findings
verify.py        checks the history of a store against the guarantees, job by job
doctor/          checks of a store, its workers and this machine, with what to do
"""
