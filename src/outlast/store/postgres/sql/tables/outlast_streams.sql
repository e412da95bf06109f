-- Limits (docs/limits.md; model/limits.py has the rules). A job that is under limits, or shares its task fairly with
-- other tenants, waits in a stream and not in the line: in an outlast_streams row, with all jobs of the same task,
-- queue and priority that need the same permits at the same costs. The client computes the ids of streams and permits,
-- so an enqueue looks nothing up. The exchange that meets the first job makes their rows (outlast_fold_v1).
--
-- A limit's row holds the declaration of the code (declared), the values that a person has set (own), and the values in
-- force (running to per); recounted_at: one of its permits had a wrong count (outlast_recount_v1). Each key of a limit
-- has a permit, and so has a limit without keys; own_running: the permit's own cap. used counts the running attempts
-- under it, and changes only in the transaction that starts an attempt, and when a notice is folded. tat: the time of
-- the next start at the full pace of the rate. opens_at: when a stream that it blocks may continue, if only time is
-- missing. kept_for, kept_until: one of its places is kept for this stream (outlast_claim_streams_v1).
--
-- A stream is open unless it is idle (it has no due job) or blocked, by a permit that is full. The rule that keeps jobs
-- from being forgotten: only an exchange at whose commit that permit is full marks a stream as blocked; a transaction
-- that changes a permit and leaves it with room for a stream that it blocks leaves a notice, or writes opens_at; and a
-- stream is marked idle only where a fresh statement sees none of its jobs. Only sessions with the keeper lock
-- (outlast_keeper_lock_v1) write limits, permits and streams.
--
-- outlast_tasks: how jobs of each task wait, as declared by the code of the newest worker. From it, SQL of other
-- languages finds their streams (outlast_stream_v1): a JSON array of the names of its limits, whether tenants take
-- turns, how its priority ages, and its own priority. Rows stay: a task may have no worker for long.
--
-- In an ordered stream jobs run one after the other: holder is the job that has begun and not ended for good, and -2 in
-- blocked says that the stream waits for that job.
--
-- While an older transaction is open, vacuum removes no version of a row and no index entry, and a trip must not walk
-- over what all earlier trips have left. So:
--   * floor: no job of the stream has its place (coalesce(aged, position)) below it, except jobs whose notices are not
--     folded yet. Claims read from there on.
--   * Each primary key ends with a number that rises (turn, version). A search for an id reads the index backwards and
--     meets the newest version first, and no new version is compared with the old ones. The keeper lock sees to it that
--     an id has one row.
--   * Nothing is written that stays as it was: see outlast_claim_streams_v1.
--
-- A notice tells the next exchange with the keeper lock how to change a stream or a permit. Any transaction appends it,
-- without a lock, and the commit that applies it deletes it. stream: this many attempts of it have ended (ended), or a
-- job of it has become due (arrived, with the task and queue that find that job, and the first place that such jobs
-- got). permit: this cost was spent (spent; below 0: returned by an attempt that never began), or a task lets nothing
-- start until then (held_until; held_for: its length, should a clock step), or there is just room.
CREATE SEQUENCE outlast_turn_seq CACHE 1;
CREATE TABLE outlast_limits (
    name         text COLLATE "C" PRIMARY KEY,
    declared     text,
    own          text,
    running      integer,
    spacing      double precision,
    burst        double precision NOT NULL DEFAULT 1,
    per          text,
    held_until   double precision,
    held_for     double precision,
    recounted_at double precision,
    CONSTRAINT outlast_limits_sound CHECK (
        running >= 0 AND spacing BETWEEN 1e-9 AND 1e9 AND burst BETWEEN 1e-9 AND 1e9 AND least(held_until, recounted_at) >= 0
        AND greatest(held_until, recounted_at) <= 1e15 AND held_for BETWEEN 0 AND 1e9)
);
CREATE TABLE outlast_permits (
    id          bigint,
    version     bigint DEFAULT nextval('outlast_turn_seq'),
    used        integer NOT NULL DEFAULT 0,
    own_running integer,
    tat         double precision NOT NULL DEFAULT 0,
    touched_at  double precision NOT NULL,
    held_until  double precision,
    opens_at    double precision,
    kept_for    bigint,
    kept_until  double precision,
    name        text COLLATE "C" NOT NULL,
    key         text NOT NULL,
    PRIMARY KEY (id, version),
    CONSTRAINT outlast_permits_sound CHECK (
        used BETWEEN -1000000000 AND 1000000000 AND own_running >= 0 AND greatest(tat, touched_at, held_until, opens_at) <= 1e15
        AND least(tat, touched_at, held_until, opens_at) >= 0)
) WITH (fillfactor = 40);
CREATE INDEX outlast_permits_opens ON outlast_permits (opens_at) WHERE opens_at IS NOT NULL;
CREATE INDEX outlast_permits_name ON outlast_permits (name, id);
CREATE TABLE outlast_streams (
    id         bigint,
    turn       bigint,
    blocked    bigint,
    touched_at double precision NOT NULL,
    idle       boolean NOT NULL DEFAULT false,
    rank       smallint NOT NULL,
    ordered    boolean NOT NULL DEFAULT false,
    holder     bigint,
    task       text COLLATE "C" NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    tenant     text,
    permits    bigint[] NOT NULL,
    costs      double precision[] NOT NULL,
    needs      text NOT NULL,
    floor      bigint NOT NULL DEFAULT '-9223372036854775808',
    PRIMARY KEY (id, turn)
) WITH (fillfactor = 40);
CREATE INDEX outlast_streams_open ON outlast_streams (task, queue, rank, turn) WHERE blocked IS NULL AND NOT idle;
CREATE INDEX outlast_streams_blocked ON outlast_streams (blocked, rank, turn) WHERE blocked IS NOT NULL;
CREATE INDEX outlast_streams_lane ON outlast_streams (blocked, task, queue, rank, turn) WHERE blocked IS NOT NULL;
CREATE INDEX outlast_streams_idle ON outlast_streams (touched_at) WHERE idle;
CREATE TABLE outlast_tasks (
    name     text COLLATE "C" PRIMARY KEY,
    limits   text NOT NULL,
    fair     boolean NOT NULL,
    aging    double precision,
    priority smallint NOT NULL
);
CREATE TABLE outlast_notices (
    id         bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    stream     bigint,
    permit     bigint,
    ended      integer NOT NULL DEFAULT 0,
    arrived    boolean NOT NULL DEFAULT false,
    task       text COLLATE "C",
    queue      text COLLATE "C",
    spent      double precision,
    held_until double precision,
    held_for   double precision,
    place      bigint
);
