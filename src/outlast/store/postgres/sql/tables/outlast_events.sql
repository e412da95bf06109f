-- Events: the first value that was sent under each name, a list with that value as JSON, encoded as payloads are. Rows
-- never change. They are deleted a month after they were sent, but not while a job that has waited for one is
-- unfinished.
CREATE TABLE outlast_events (
    name text COLLATE "C" PRIMARY KEY, value text NOT NULL, at double precision NOT NULL);
CREATE INDEX outlast_events_at ON outlast_events (at);

-- Jobs that wait for an event, or have waited for one: one row for each job, of its last wait. The end of the attempt
-- `token` has written it, and has queued the job for the end of the wait (run_at). So the job waits as long as it is
-- queued, has that token and has no position. woken: the event has come, or the job does not wait any longer. Rows are
-- deleted with their jobs.
CREATE TABLE outlast_waits (
    job_id bigint PRIMARY KEY, token bigint NOT NULL, event text COLLATE "C" NOT NULL, woken boolean NOT NULL DEFAULT false);
CREATE INDEX outlast_waits_event ON outlast_waits (event, woken);
