-- 0001 schema: the tables and functions of Outlast.
-- compatible_from: 0.1
--
-- Payloads are text (JSON that Outlast encodes): jsonb refuses \u0000, and nothing here looks inside. An instant is a
-- number of seconds since 1970, as in Python and on SQLite, exact to less than a microsecond. A person reads times in
-- the view outlast_jobs_for_people.
--
-- The line: position is NULL while a queued job is not due yet. It is drawn from an ever-rising sequence when the job
-- becomes due, so (queue, priority, position) is the order of the line, and future jobs are not in it. A lane is the
-- part of the line with one queue, task and priority. Indexes compare by bytes, so clients order lanes as the index
-- does, in every locale of the database, and keys stay unique when the server's library begins to sort in another way.
-- The line has one index, which begins with the task, so that a worker never reads jobs of tasks that it does not know,
-- in however many queues they wait.
--
-- A job that is under limits, or shares its task fairly (stream, and needs, its permits: tables/outlast_streams.sql),
-- gets its position in the same way, but is in no lane: each stream has its part of an index of its own. That index
-- begins with the same columns as the line's, so that queries for people read both in the same way. aged: where waiting
-- raises priorities, the time in milliseconds at which the job became due, less the worth of its priority; it orders
-- the stream instead of the position. It is computed once, from the server's clock, so no sweep changes it.
--
-- Scheduled jobs are indexed by their time over all queues, so that one read shows the due ones, and by queue for
-- requests that name queues. The wording of a statement decides which of the two indexes it may use: abs(solo) >= 0 for
-- the first and solo >= 0 for the second, both true of all jobs; otherwise a plan would search for the next job of one
-- queue among the jobs of all queues (seen).
--
-- worker_id is set exactly while the job is running, so the index of running jobs needs no predicate on state. (A
-- prepared completion beside an index "WHERE state = 'running'" was seen to get a plan quadratic in the batch.) token
-- stays after the end, since it decides the answer "already". completed_by is the worker of the attempt that
-- completed; the other attempts have their own rows in outlast_attempts, and the view outlast_history shows both
-- kinds as one list. The index of keys recognises an unfinished job by ended_at: a test for NULL costs less than one of
-- states.
--
-- solo: 0 shares a runner with others; 1 runs alone in a runner, since it shared one that died; 2 runs alone in its
-- whole worker. incident names that first shared death (by the lowest token in it). Claims for other jobs pass over
-- suspects in the line and in streams; an index of their own shows them to claims for suspects.
--
-- expires_at: a job that has not begun by then is ended (outlast_expire_v1). It is NULL for most jobs, at the cost of a
-- bit, and for a job that has begun and returned to the queue. An expired job is recognised as one that is cancelled
-- without a request (cancel_requested) and without an attempt under way (started_at).
--
-- keep: for how many seconds the row is kept once the job has completed or was cancelled; 0: the commit of its end
-- deletes it; NULL for most: as long as the workers' settings say. The index of ended jobs begins with the end of that
-- time; NULL for jobs without keep, which it orders by their end.
--
-- fingerprint: a hash that a dead job's last end has in common with similar ends (model/crash.py); otherwise NULL.
-- Its index shows their groups and queues without reading rows. stack, stack_at: where an attempt was when a person
-- last asked.
--
-- Workers: lacks maps tasks that a worker may not serve to the tags that it needs for them. presence: the incarnation
-- of the database under which the worker's advisory lock was taken, and the role of the session (INCARNATION/ROLE);
-- presence_off: why there is none. wakeup: how the worker is woken, and any fault in that. cause: why the row ended;
-- begun: the newest token that the worker had let begin, if known. failing: a live worker's failing duty, and its
-- error. stacks: the attempts whose stacks a worker is asked for (store/stacks.py).
--
-- A job that waits for others is blocked (tables/outlast_dependencies.sql): it is in no line, and in none of the
-- indexes of queued jobs, until outlast_follow_v1 makes it queued. awaited: other jobs wait for this one, so its end,
-- and a requeue after it, are followed.
--
-- The one CHECK of a job is the last line of safety, below all functions. It refuses states that would lose a job
-- (running without worker, token or start: never reclaimed), run it twice (a place in the line while it runs or after
-- its end) or keep it for good (an end without its time), and a priority out of range, which callers choose. PostgreSQL
-- parses each CHECK again in every statement that writes: ten small ones took 90 of the 270 us that it spent on
-- enqueuing a job; this one takes 45. So it names as few columns as possible, and leaves out conditions whose violation
-- harms no job: that only completed jobs have a result, that counts are not negative, that solo is 0, 1 or 2. The
-- tables of SQLite have CHECKs for these, and the same tests.
--
-- The columns of a job are ordered by how often they change, and its pages are filled by less than half. So the next
-- version of a row finds room on the same page, and only the changed stretch in the middle is written to the WAL. This
-- is room for the row's three versions (queued, running, ended), which the table needs at its peak anyway.

CREATE SEQUENCE outlast_token_seq CACHE 1;
CREATE SEQUENCE outlast_position_seq CACHE 1;

-- The marks of watchers, the workers that watch over all others, one sequence each: outlast_keep_watch_v1.
CREATE SEQUENCE outlast_watch_1_seq CACHE 1;
CREATE SEQUENCE outlast_watch_2_seq CACHE 1;
CREATE SEQUENCE outlast_watch_3_seq CACHE 1;

CREATE TABLE outlast_jobs (
    id                bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    run_at            double precision NOT NULL,
    enqueued_at       double precision NOT NULL,
    requeued_at       double precision,
    timeout           double precision,
    expires_at        double precision,
    keep              double precision,
    incident          bigint,
    stream            bigint,
    aged              bigint,
    failures          integer NOT NULL DEFAULT 0,
    losses            integer NOT NULL DEFAULT 0,
    priority          smallint NOT NULL DEFAULT 0,
    solo              smallint NOT NULL DEFAULT 0,
    cancel_requested  boolean NOT NULL DEFAULT false,
    awaited           boolean NOT NULL DEFAULT false,
    task              text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    policy            text NOT NULL DEFAULT '{}',
    key               text COLLATE "C",
    tenant            text,
    needs             text,
    args              text NOT NULL,
    progress          text,
    checkpoint        text,
    checkpoint_at     double precision,
    checkpoint_number integer NOT NULL DEFAULT 0,
    attempt_count     integer NOT NULL DEFAULT 0,
    state             text NOT NULL DEFAULT 'queued',
    position          bigint,
    token             bigint,
    worker_id         bigint,
    started_at        double precision,
    hard_deadline     double precision,
    ended_at          double precision,
    completed_by      bigint,
    result            text,
    fingerprint       text,
    stack_at          double precision,
    stack             text,
    CONSTRAINT outlast_jobs_sound CHECK (
        state = ANY (CASE WHEN worker_id IS NOT NULL THEN '{running}'::text[]
                          WHEN position IS NOT NULL THEN '{queued}'::text[]
                          WHEN ended_at IS NULL THEN '{queued,blocked}'::text[]
                          ELSE '{completed,dead,cancelled}'::text[] END)
        AND num_nonnulls(worker_id, ended_at, position) <= 1
        AND (worker_id IS NULL OR num_nulls(token, started_at) = 0)
        AND abs(priority) <= 100)
) WITH (fillfactor = 42);
CREATE INDEX outlast_jobs_lane ON outlast_jobs (task, queue, (-priority), position)
    WHERE position IS NOT NULL AND stream IS NULL;
CREATE INDEX outlast_jobs_stream ON outlast_jobs (task, queue, stream, coalesce(aged, position))
    WHERE position IS NOT NULL AND stream IS NOT NULL;
CREATE INDEX outlast_jobs_run_at ON outlast_jobs (run_at) WHERE state = 'queued' AND position IS NULL AND abs(solo) >= 0;
CREATE INDEX outlast_jobs_due ON outlast_jobs (queue, run_at) WHERE state = 'queued' AND position IS NULL AND solo >= 0;
CREATE INDEX outlast_jobs_suspect ON outlast_jobs (task, queue, stream, (-priority), position)
    WHERE state = 'queued' AND solo > 0;
CREATE INDEX outlast_jobs_expires ON outlast_jobs (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('queued', 'blocked');
CREATE INDEX outlast_jobs_blocked ON outlast_jobs (id) WHERE state = 'blocked';
CREATE INDEX outlast_jobs_incident ON outlast_jobs (incident) WHERE incident IS NOT NULL;
CREATE INDEX outlast_jobs_deadline ON outlast_jobs (hard_deadline) WHERE hard_deadline IS NOT NULL;
CREATE INDEX outlast_jobs_worker ON outlast_jobs (worker_id, cancel_requested) WHERE worker_id IS NOT NULL;
CREATE INDEX outlast_jobs_ended_at ON outlast_jobs ((ended_at + keep), ended_at) WHERE ended_at IS NOT NULL AND state <> 'dead';
CREATE INDEX outlast_jobs_dead ON outlast_jobs (id) INCLUDE (fingerprint, ended_at, queue) WHERE state = 'dead';
CREATE INDEX outlast_jobs_died ON outlast_jobs (ended_at) WHERE state = 'dead';
CREATE UNIQUE INDEX outlast_jobs_key ON outlast_jobs (key) WHERE key IS NOT NULL AND ended_at IS NULL;

-- The labels of jobs that have any (the policy holds them, too), to find jobs by label (outlast_labels_name), newest
-- first. They are deleted with their jobs.
CREATE TABLE outlast_labels (job_id bigint NOT NULL, label text COLLATE "C" NOT NULL, PRIMARY KEY (job_id, label));
CREATE INDEX outlast_labels_name ON outlast_labels (label, job_id);

-- Attempts that did not complete; the facts of a completed attempt are on the job's row. repeats: how many
-- attempts in a row have ended with this outcome, including this one. Rows never change. Between a job's
-- first and last attempts, those that were not charged are deleted (outlast_end_v1); dropped counts how many
-- were deleted up to and by this end.
CREATE TABLE outlast_attempts (
    token          bigint PRIMARY KEY,
    job_id         bigint NOT NULL,
    number         integer NOT NULL,
    worker_id      bigint,
    worker         text,
    host           text,
    pid            integer,
    outcome        text NOT NULL,
    charge         text NOT NULL,
    message        text NOT NULL DEFAULT '',
    started_at     double precision NOT NULL,
    ended_at       double precision NOT NULL,
    progress       text,
    checkpoint_age double precision,
    crash          text,
    repeats        integer NOT NULL DEFAULT 1,
    dropped        integer NOT NULL DEFAULT 0,
    CONSTRAINT outlast_attempts_charge CHECK (charge IN ('none', 'failure', 'loss'))
);
CREATE INDEX outlast_attempts_job ON outlast_attempts (job_id, number);

-- The last lines that attempts have printed (JSON), if logs are kept; printed: how many lines the attempt has printed.
-- They are deleted with their jobs.
CREATE TABLE outlast_logs (
    token bigint PRIMARY KEY, job_id bigint NOT NULL, number integer NOT NULL,
    printed integer NOT NULL DEFAULT 0, lines text NOT NULL) WITH (fillfactor = 50);
CREATE INDEX outlast_logs_job ON outlast_logs (job_id, token);

-- Values of steps, one for each (job, step); token: the attempt that has kept it. They stay for later attempts, also
-- those of a job that is requeued (unless from scratch), and are deleted with their jobs. Rows never change.
CREATE TABLE outlast_steps (
    job_id bigint NOT NULL, name text COLLATE "C" NOT NULL, token bigint NOT NULL,
    value text NOT NULL, at double precision NOT NULL, PRIMARY KEY (job_id, name));

CREATE TABLE outlast_workers (
    id               bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name             text NOT NULL,
    host             text NOT NULL,
    pid              integer NOT NULL,
    boot_id          text COLLATE "C" NOT NULL,
    status           text NOT NULL DEFAULT 'active',
    epoch            integer NOT NULL DEFAULT 1,
    beat             bigint NOT NULL DEFAULT 0,
    heartbeat        double precision NOT NULL,
    lease            double precision NOT NULL,
    queues           text NOT NULL DEFAULT '[]',
    tasks            text NOT NULL DEFAULT '[]',
    tags             text NOT NULL DEFAULT '[]',
    lacks            text NOT NULL DEFAULT '{}',
    instance         text,
    registration     text COLLATE "C" UNIQUE,
    release          text,
    started_at       double precision NOT NULL,
    heartbeat_at     double precision NOT NULL,
    lease_expires_at double precision NOT NULL,
    stopped_at       double precision,
    cause            text,
    begun            bigint,
    drain_requested  boolean NOT NULL DEFAULT false,
    stacks           text,
    presence         text,
    presence_off     text,
    wakeup           text,
    failing          text,
    failing_since    double precision,
    acknowledged_pauses text,
    lock_path        text,
    lock_device      bigint,
    lock_inode       bigint,
    CONSTRAINT outlast_workers_status CHECK (status IN ('active', 'draining', 'stopped', 'lost')),
    CONSTRAINT outlast_workers_lease CHECK (heartbeat > 0 AND lease >= 3 * heartbeat),
    CONSTRAINT outlast_workers_stopped CHECK ((status IN ('stopped', 'lost')) = (stopped_at IS NOT NULL))
);
CREATE INDEX outlast_workers_live ON outlast_workers (boot_id, lock_device, id) WHERE status IN ('active', 'draining');
CREATE INDEX outlast_workers_gone ON outlast_workers (stopped_at, id) WHERE stopped_at IS NOT NULL;

CREATE TABLE outlast_refusals (
    id        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    job_id    bigint NOT NULL,
    token     bigint NOT NULL,
    verb      text NOT NULL,
    at        double precision NOT NULL,
    late_by   double precision
);
CREATE INDEX outlast_refusals_job ON outlast_refusals (job_id);

-- Schedules (store/schedules.py defines the columns). There is no row for each tick: the commit that stores the job of
-- a tick moves since and next_tick forward. version names the content, versions the replaced ones, separated by spaces.
-- Workers find next_tick by its index, which holds only schedules that may fire: a schedule that is paused or deleted,
-- or that no code declares, costs no read.
CREATE TABLE outlast_schedules (
    name          text COLLATE "C" PRIMARY KEY,
    call          text NOT NULL,
    spec          text NOT NULL,
    overlap       text NOT NULL,
    catch_up      text NOT NULL,
    grace         double precision NOT NULL,
    origin        text NOT NULL,
    version       text NOT NULL,
    versions      text NOT NULL DEFAULT '',
    revision      bigint NOT NULL,
    paused        boolean NOT NULL DEFAULT false,
    declared      boolean NOT NULL DEFAULT true,
    declared_at   double precision,
    since         double precision NOT NULL,
    next_tick     double precision,
    owed          text NOT NULL DEFAULT '',
    last_tick     double precision,
    last_job      bigint,
    fired         bigint NOT NULL DEFAULT 0,
    skipped       bigint NOT NULL DEFAULT 0,
    missed        bigint NOT NULL DEFAULT 0,
    last_skip     double precision,
    last_skip_job bigint,
    CONSTRAINT outlast_schedules_origin CHECK ((origin = 'run_time') = (declared_at IS NULL)),
    CONSTRAINT outlast_schedules_times CHECK (
        grace BETWEEN 0 AND 1e15 AND declared_at BETWEEN -1e15 AND 1e15 AND since BETWEEN -1e15 AND 1e15
        AND next_tick BETWEEN -1e15 AND 1e15 AND last_tick BETWEEN -1e15 AND 1e15
        AND last_skip BETWEEN -1e15 AND 1e15),
    CONSTRAINT outlast_schedules_counts CHECK (
        fired BETWEEN 0 AND 1e15 AND skipped BETWEEN 0 AND 1e15 AND missed BETWEEN 0 AND 1e15)
) WITH (fillfactor = 70);
CREATE INDEX outlast_schedules_next ON outlast_schedules (next_tick, name)
    WHERE NOT paused AND declared AND next_tick IS NOT NULL;
CREATE INDEX outlast_schedules_declared ON outlast_schedules (declared_at) WHERE declared_at IS NOT NULL;

-- Pauses, one row each; no job that a pause covers starts. Pausing the same again draws a new id, so that workers
-- acknowledge it again (acknowledged_pauses, on a worker's row, lists the ids that it acts on; NULL: it has not read
-- them). stop: running attempts are asked to stop, too.
CREATE TABLE outlast_pauses (
    id        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kind      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    paused_at double precision NOT NULL,
    paused_by text,
    reason    text,
    stop      boolean NOT NULL DEFAULT false,
    CONSTRAINT outlast_pauses_once UNIQUE (kind, name),
    CONSTRAINT outlast_pauses_kind CHECK (
        kind IN ('queue', 'task', 'tenant', 'all') AND (kind = 'all') = (name = ''))
);

\ir tables/outlast_minutes.sql
\ir tables/outlast_actions.sql
\ir tables/outlast_streams.sql
\ir tables/outlast_dependencies.sql
\ir tables/outlast_windows.sql
\ir tables/outlast_lanes.sql
\ir tables/outlast_events.sql
\ir tables/autovacuum.sql
-- One row for each applied migration; the first one holds the store's id, which is drawn once.
CREATE TABLE outlast_schema (
    number          integer PRIMARY KEY,
    name            text NOT NULL,
    checksum        text NOT NULL,
    compatible_from text NOT NULL,
    applied_at      double precision NOT NULL,
    store_id        uuid,
    CONSTRAINT outlast_schema_id CHECK ((number = 1) = (store_id IS NOT NULL))
);

-- One row, drawn again for each run of the database that may know less than the one before. It names its home, the run
-- of the server and the database in which it was drawn (outlast_home_v1), and counts in no other: it may be copied with
-- the files, the database or a dump. The table is unlogged, so the recovery from a crash empties it; such a recovery
-- ends all sessions and may lose the tail of the WAL, but keeps the start time (outlast_begin_incarnation_v1).
CREATE UNLOGGED TABLE outlast_incarnation (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    home text NOT NULL,
    id   uuid NOT NULL DEFAULT gen_random_uuid()
);

CREATE VIEW outlast_history AS
SELECT a.job_id, a.token, a.number, a.worker_id, a.worker, a.host, a.pid, a.outcome, a.charge,
       a.started_at, a.ended_at
FROM outlast_attempts a
UNION ALL
SELECT j.id, j.token, j.attempt_count, j.completed_by, w.name, w.host, NULL::integer, 'completed',
       'none', j.started_at, j.ended_at
FROM outlast_jobs j LEFT JOIN outlast_workers w ON w.id = j.completed_by
WHERE j.state = 'completed';

-- Jobs with their times as people read them, for psql and dashboards. No statement of Outlast reads this view. A filter
-- on one of these times reads all jobs: indexes hold the numbers of outlast_jobs. A number that is not a time, which a
-- role that may enqueue can write, is shown as NULL: otherwise it would break each read of the view.
CREATE VIEW outlast_jobs_for_people AS
SELECT j.id, j.task, j.queue, j.state, j.priority, j.tenant, j.key, j.attempt_count, j.failures, j.losses, j.token,
       j.worker_id, j.completed_by, j.solo, j.cancel_requested,
       to_timestamp(CASE WHEN j.enqueued_at BETWEEN -2.1e11 AND 9.2e12 THEN j.enqueued_at END) AS enqueued_at,
       to_timestamp(CASE WHEN j.run_at BETWEEN -2.1e11 AND 9.2e12 THEN j.run_at END) AS run_at,
       to_timestamp(CASE WHEN j.expires_at BETWEEN -2.1e11 AND 9.2e12 THEN j.expires_at END) AS expires_at,
       to_timestamp(CASE WHEN j.requeued_at BETWEEN -2.1e11 AND 9.2e12 THEN j.requeued_at END) AS requeued_at,
       to_timestamp(CASE WHEN j.started_at BETWEEN -2.1e11 AND 9.2e12 THEN j.started_at END) AS started_at,
       to_timestamp(CASE WHEN j.hard_deadline BETWEEN -2.1e11 AND 9.2e12 THEN j.hard_deadline END) AS hard_deadline,
       to_timestamp(CASE WHEN j.checkpoint_at BETWEEN -2.1e11 AND 9.2e12 THEN j.checkpoint_at END) AS checkpoint_at,
       to_timestamp(CASE WHEN j.ended_at BETWEEN -2.1e11 AND 9.2e12 THEN j.ended_at END) AS ended_at,
       j.progress, j.args, j.result
FROM outlast_jobs j;

-- The functions, each in its own file, whose head argues why it is right. They are versioned by name: a
-- released function never changes, and a later migration includes its _v2. The text of an included file counts
-- towards the checksum of this migration as if it stood here.
--
-- The planner settings on functions that are called from outside (inner functions run under them) leave nested loops
-- over index scans as the only plan. That is right for 1 row in and for 500, in an empty table and among millions of
-- finished jobs, regardless of the statistics.

-- Helpers of several functions.
\ir functions/outlast_home_v1.sql
\ir functions/outlast_read_from_v1.sql
\ir functions/outlast_keep_floor_v1.sql
\ir functions/outlast_first_due_v1.sql
\ir functions/outlast_first_tick_v1.sql

-- The one guard under which an attempt is closed, the answers to late writes, and the deletion of jobs.
\ir functions/outlast_note_v1.sql
\ir functions/outlast_forget_v1.sql
\ir functions/outlast_complete_away_v1.sql
\ir functions/outlast_end_v1.sql
\ir functions/outlast_clear_v1.sql
\ir functions/outlast_judge_v1.sql
\ir functions/outlast_hand_in_v1.sql
\ir functions/outlast_complete_v1.sql
\ir functions/outlast_channel_v1.sql
\ir functions/outlast_notify_v1.sql

-- The line, read lane by lane (task, queue, priority) and from floors: outlast_claim_line_v1 argues why.
\ir types/outlast_claim_request_v1.sql
\ir functions/outlast_read_lanes_v1.sql
\ir functions/outlast_fit_v1.sql
\ir functions/outlast_lock_lanes_v1.sql
\ir functions/outlast_claim_line_v1.sql
\ir functions/outlast_line_waits_v1.sql
\ir functions/outlast_due_v1.sql
\ir functions/outlast_end_expired_v1.sql
\ir functions/outlast_expire_v1.sql
\ir functions/outlast_free_keys_v1.sql
REVOKE ALL ON FUNCTION outlast_free_keys_v1 FROM PUBLIC;
\ir functions/outlast_replace_v1.sql
REVOKE ALL ON FUNCTION outlast_replace_v1 FROM PUBLIC;

-- The rows that roles that may only enqueue write beside their new jobs.
\ir functions/outlast_add_lanes_v1.sql
REVOKE ALL ON FUNCTION outlast_add_lanes_v1 FROM PUBLIC;
\ir functions/outlast_line_up_v1.sql
\ir functions/outlast_thin_lanes_v1.sql
\ir functions/outlast_check_new_v1.sql
\ir functions/outlast_depend_v1.sql
REVOKE ALL ON FUNCTION outlast_depend_v1 FROM PUBLIC;
\ir functions/outlast_label_v1.sql
REVOKE ALL ON FUNCTION outlast_label_v1 FROM PUBLIC;
\ir functions/outlast_take_window_v1.sql
REVOKE ALL ON FUNCTION outlast_take_window_v1 FROM PUBLIC;
\ir functions/outlast_fill_window_v1.sql
REVOKE ALL ON FUNCTION outlast_fill_window_v1 FROM PUBLIC;

-- Limits: the folding of notices, and the claim of streams.
\ir functions/outlast_needs_v1.sql
\ir functions/outlast_keeper_lock_v1.sql
\ir functions/outlast_lock_keeper_v1.sql
\ir functions/outlast_room_v1.sql
\ir functions/outlast_make_permits_v1.sql
\ir functions/outlast_make_streams_v1.sql
\ir functions/outlast_fold_v1.sql
\ir functions/outlast_claim_streams_v1.sql
\ir functions/outlast_first_of_streams_v1.sql
\ir functions/outlast_next_opening_v1.sql
\ir functions/outlast_leave_ends_v1.sql
\ir functions/outlast_leave_permits_v1.sql

-- Jobs that wait for others: the consequences of the notices of ends.
\ir functions/outlast_wake_v1.sql
\ir functions/outlast_follow_v1.sql
\ir functions/outlast_follow_children_v1.sql
\ir functions/outlast_resolve_v1.sql
\ir functions/outlast_is_over_v1.sql

-- Hand in ended attempts and claim jobs, in one round trip and one commit.
\ir types/outlast_claimed_v1.sql
\ir functions/outlast_followed_v1.sql
\ir functions/outlast_prepare_claim_v1.sql
\ir functions/outlast_exchange_v1.sql

-- Find running jobs that no live worker runs, and release them.
\ir functions/outlast_facts_v1.sql
\ir functions/outlast_gone_v1.sql
\ir functions/outlast_orphans_v1.sql
\ir functions/outlast_astray_v1.sql
\ir functions/outlast_close_v1.sql
\ir functions/outlast_reconcile_v1.sql
\ir functions/outlast_terminate_stuck_v1.sql

-- The worker's row: writes to it wait for no standby.
\ir functions/outlast_commit_locally_v1.sql
CREATE TRIGGER outlast_workers_commit_locally BEFORE UPDATE ON outlast_workers
FOR EACH STATEMENT EXECUTE FUNCTION outlast_commit_locally_v1();
CREATE TRIGGER outlast_minutes_commit_locally BEFORE INSERT OR DELETE ON outlast_minutes
FOR EACH STATEMENT EXECUTE FUNCTION outlast_commit_locally_v1();

-- The marks of watchers, and the peek that each worker takes all the time, by itself and with its beats.
\ir functions/outlast_keep_watch_v1.sql
\ir functions/outlast_peek_v1.sql
\ir functions/outlast_heartbeat_v1.sql

-- Presence: a lock that a live worker's session holds and that is released with the session.
\ir functions/outlast_incarnation_v1.sql
\ir functions/outlast_presence_key_v1.sql
\ir functions/outlast_locks_v1.sql
\ir functions/outlast_presence_held_v1.sql
\ir functions/outlast_presence_v1.sql
\ir functions/outlast_hold_presence_v1.sql

-- Checkpoints, steps and progress of running attempts.
\ir functions/outlast_unseen_v1.sql
\ir functions/outlast_checkpoint_v1.sql
\ir functions/outlast_keep_steps_v1.sql
\ir functions/outlast_progress_v1.sql
\ir functions/outlast_keep_logs_v1.sql

-- Which suspects run next: step 4 of outlast_exchange_v1.
\ir functions/outlast_lock_suspects_v1.sql

-- Acts of operators, the jumps of sequences, jobs that messages name, schedules, and unpublished jobs.
\ir functions/outlast_put_limits_v1.sql
\ir functions/outlast_holders_v1.sql
\ir functions/outlast_recount_v1.sql
\ir functions/outlast_raise_tokens_v1.sql
\ir functions/outlast_raise_ids_v1.sql
\ir functions/outlast_begin_incarnation_v1.sql
\ir functions/outlast_raise_numbers_v1.sql
\ir functions/outlast_put_schedule_v1.sql
\ir functions/outlast_waiting_v1.sql

-- Adding up the counters of workers; and how many workers a queue could use, for autoscalers.
\ir functions/outlast_wanted_v1.sql
-- Enqueuing from other languages; it runs as its owner, for roles to which it is granted.
\ir functions/outlast_refuse_args_v1.sql
\ir functions/outlast_hash_v1.sql
\ir functions/outlast_stream_id_v1.sql
\ir functions/outlast_stream_v1.sql
\ir functions/outlast_enqueue_v1.sql
REVOKE ALL ON FUNCTION outlast_enqueue_v1 FROM PUBLIC;
\ir functions/outlast_keep_event_v1.sql
REVOKE ALL ON FUNCTION outlast_keep_event_v1 FROM PUBLIC;
\ir functions/outlast_send_event_v1.sql
REVOKE ALL ON FUNCTION outlast_send_event_v1 FROM PUBLIC;

-- An enqueue may come before the first worker: the ids of a new store do not jump.
SELECT outlast_begin_incarnation_v1();
