-- 0001 schema: the tables of Outlast.
-- compatible_from: 0.1
--
-- Tables and columns have the same meaning as on PostgreSQL (postgres/sql/migration_0001_schema.sql and the tables/
-- beside it); the comments here name the differences. Times are REAL seconds since 1970 from the program's clock; flags
-- are 0 or 1. There is no presence.
--
-- The invariants of a state are one CASE: an IN list of more than two builds a temporary index for every row that is
-- written, which was seen to double the cost of a claim.
--
-- The tables are STRICT: a column holds its type or NULL, so no blob or text stands in place of a number, where it
-- would make each exchange that reads it fail. Each number is held to a range within which arithmetic is safe: a value
-- outside is refused when it is written. (NULL passes a CHECK.) Columns that are written once have separate
-- constraints: an update checks only those of the columns that it changes.
--

-- Ids, positions and tokens always rise, also past deleted rows, so they are never max(id) + 1.
CREATE TABLE outlast_sequences (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
INSERT INTO outlast_sequences (name, value)
VALUES ('job', 0), ('worker', 0), ('position', 0), ('token', 0), ('turn', 0);

CREATE TABLE outlast_jobs (
    id                INTEGER PRIMARY KEY,
    task              TEXT NOT NULL,
    queue             TEXT NOT NULL,
    state             TEXT NOT NULL DEFAULT 'queued',
    priority          INTEGER NOT NULL DEFAULT 0,
    position          INTEGER,
    run_at            REAL NOT NULL,
    enqueued_at       REAL NOT NULL,
    requeued_at       REAL,
    args              TEXT NOT NULL,
    policy            TEXT NOT NULL DEFAULT '{}',
    timeout           REAL,
    expires_at        REAL,
    keep              REAL,
    key               TEXT,
    tenant            TEXT,
    attempt_count     INTEGER NOT NULL DEFAULT 0,
    failures          INTEGER NOT NULL DEFAULT 0,
    losses            INTEGER NOT NULL DEFAULT 0,
    solo              INTEGER NOT NULL DEFAULT 0,
    incident          INTEGER,
    token             INTEGER,
    worker_id         INTEGER,
    completed_by      INTEGER,
    started_at        REAL,
    ended_at          REAL,
    hard_deadline     REAL,
    cancel_requested  INTEGER NOT NULL DEFAULT 0,
    awaited           INTEGER NOT NULL DEFAULT 0,
    progress          TEXT,
    checkpoint        TEXT,
    checkpoint_number INTEGER NOT NULL DEFAULT 0,
    checkpoint_at     REAL,
    result            TEXT,
    fingerprint       TEXT,
    stack_at          REAL,
    stack             TEXT,
    stream            INTEGER,
    needs             TEXT,
    aged              INTEGER,
    CONSTRAINT outlast_jobs_state CHECK (
        CASE state
            WHEN 'queued' THEN worker_id IS NULL AND ended_at IS NULL AND result IS NULL
            WHEN 'running' THEN worker_id IS NOT NULL AND token IS NOT NULL
                AND started_at IS NOT NULL AND position IS NULL AND ended_at IS NULL
                AND result IS NULL
            WHEN 'completed' THEN worker_id IS NULL AND position IS NULL AND ended_at IS NOT NULL
            WHEN 'blocked' THEN worker_id IS NULL AND position IS NULL AND ended_at IS NULL AND result IS NULL
            WHEN 'dead' THEN worker_id IS NULL AND position IS NULL AND ended_at IS NOT NULL
                AND result IS NULL
            WHEN 'cancelled' THEN worker_id IS NULL AND position IS NULL
                AND ended_at IS NOT NULL AND result IS NULL
            ELSE 0
        END),
    CONSTRAINT outlast_jobs_completed_by CHECK (completed_by IS NULL OR state = 'completed'),
    CONSTRAINT outlast_jobs_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT outlast_jobs_written CHECK (
        enqueued_at BETWEEN -1e15 AND 1e15 AND requeued_at BETWEEN -1e15 AND 1e15 AND timeout BETWEEN 0 AND 1e15
        AND expires_at BETWEEN -1e15 AND 1e15 AND keep BETWEEN 0 AND 1e15),
    CONSTRAINT outlast_jobs_counts CHECK (
        attempt_count BETWEEN 0 AND 2147483647 AND failures BETWEEN 0 AND 2147483647
        AND losses BETWEEN 0 AND 2147483647),
    CONSTRAINT outlast_jobs_moves CHECK (
        run_at BETWEEN -1e15 AND 1e15 AND started_at BETWEEN -1e15 AND 1e15
        AND ended_at BETWEEN -1e15 AND 1e15 AND hard_deadline BETWEEN -1e16 AND 1e16),
    CONSTRAINT outlast_jobs_saves CHECK (
        checkpoint_at BETWEEN -1e15 AND 1e15 AND stack_at BETWEEN -1e15 AND 1e15),
    CONSTRAINT outlast_jobs_solo CHECK (solo BETWEEN 0 AND 2),
    CONSTRAINT outlast_jobs_flags CHECK ((cancel_requested = 0 OR cancel_requested = 1) AND (awaited = 0 OR awaited = 1)),
    CONSTRAINT outlast_jobs_needs CHECK (
        CASE WHEN stream IS NULL THEN needs IS NULL ELSE json_valid(needs) AND json_type(needs) = 'array' END)
) STRICT;
-- They include stream and solo, as all columns of a query have to be in an index that spares the rows.
CREATE INDEX outlast_jobs_line ON outlast_jobs (task, queue, priority DESC, position, stream, solo)
    WHERE position IS NOT NULL AND stream IS NULL;
CREATE INDEX outlast_jobs_stream ON outlast_jobs (task, queue, stream, coalesce(aged, position), position, solo)
    WHERE position IS NOT NULL AND stream IS NOT NULL;
CREATE INDEX outlast_jobs_run_at ON outlast_jobs (run_at)
    WHERE position IS NULL AND state = 'queued';
CREATE INDEX outlast_jobs_due ON outlast_jobs (queue, run_at, task, solo)
    WHERE position IS NULL AND state = 'queued';
CREATE INDEX outlast_jobs_suspect ON outlast_jobs (task, queue, stream, (-priority), position)
    WHERE solo > 0 AND state = 'queued';
CREATE INDEX outlast_jobs_expires ON outlast_jobs (expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('queued', 'blocked');
CREATE INDEX outlast_jobs_blocked ON outlast_jobs (id) WHERE state = 'blocked';
CREATE INDEX outlast_jobs_incident ON outlast_jobs (incident) WHERE incident IS NOT NULL;
CREATE INDEX outlast_jobs_deadline ON outlast_jobs (hard_deadline) WHERE hard_deadline IS NOT NULL;
CREATE INDEX outlast_jobs_worker ON outlast_jobs (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX outlast_jobs_cancel ON outlast_jobs (worker_id)
    WHERE worker_id IS NOT NULL AND cancel_requested = 1;
CREATE INDEX outlast_jobs_ended_at ON outlast_jobs (ended_at + keep, ended_at)
    WHERE ended_at IS NOT NULL AND state <> 'dead';
-- It includes state: only an index that holds all columns of a query, also those of its own WHERE, needs no rows.
CREATE INDEX outlast_jobs_dead ON outlast_jobs (id, state, fingerprint, ended_at, queue) WHERE state = 'dead';
CREATE INDEX outlast_jobs_died ON outlast_jobs (ended_at) WHERE state = 'dead';
-- "ended_at IS NULL" means unfinished, as a test of state would, but spares a claim from touching this index.
CREATE UNIQUE INDEX outlast_jobs_key ON outlast_jobs (key)
    WHERE key IS NOT NULL AND ended_at IS NULL;

-- held_until: only of a limit per tenant or key. held_for: the seconds that were asked for.
CREATE TABLE outlast_limits (
    name         TEXT PRIMARY KEY,
    declared     TEXT,
    own          TEXT,
    running      INTEGER,
    spacing      REAL,
    burst        REAL NOT NULL DEFAULT 1.0,
    per          TEXT,
    held_until   REAL,
    held_for     REAL,
    recounted_at REAL,
    CONSTRAINT outlast_limits_ranges CHECK (
        running BETWEEN 0 AND 1000000 AND spacing BETWEEN 1e-9 AND 1e9 AND burst BETWEEN 1e-9 AND 1e9
        AND held_until BETWEEN -1e15 AND 1e16 AND held_for BETWEEN 0 AND 1e16 AND recounted_at BETWEEN -1e15 AND 1e15)
) WITHOUT ROWID, STRICT;

-- A row is made when a job first needs the permit. freed: it may have room for streams that it blocks, and the next
-- exchange looks at it. kept_until stays as the last time.
CREATE TABLE outlast_permits (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    used        INTEGER NOT NULL DEFAULT 0,
    tat         REAL NOT NULL DEFAULT 0.0,
    touched_at  REAL NOT NULL DEFAULT 0.0,
    held_until  REAL,
    own_running INTEGER,
    opens_at    REAL,
    freed       INTEGER NOT NULL DEFAULT 0,
    kept_for    INTEGER,
    kept_until  REAL,
    CONSTRAINT outlast_permits_ranges CHECK (
        used BETWEEN 0 AND 1e12 AND tat BETWEEN -1e17 AND 1e17 AND touched_at BETWEEN -1e15 AND 1e15
        AND held_until BETWEEN -1e15 AND 1e16 AND own_running BETWEEN 0 AND 1000000
        AND opens_at BETWEEN -1e17 AND 1e17 AND freed BETWEEN 0 AND 1 AND kept_until BETWEEN -1e17 AND 1e17)
) STRICT;
CREATE INDEX outlast_permits_name ON outlast_permits (name);
CREATE INDEX outlast_permits_opens ON outlast_permits (opens_at) WHERE opens_at IS NOT NULL;
CREATE INDEX outlast_permits_ahead ON outlast_permits (touched_at) WHERE opens_at IS NOT NULL;
CREATE INDEX outlast_permits_freed ON outlast_permits (freed) WHERE freed = 1;

-- rank: the priority, negated. turn: streams with lower turns start first. A stream that is neither blocked nor idle is
-- open. touched_at: when a job of it last started, or idle last changed. tenant: of all jobs with a position; NULL:
-- they may have several. Each job that gets a position compares its own.
CREATE TABLE outlast_streams (
    id         INTEGER PRIMARY KEY,
    task       TEXT NOT NULL,
    queue      TEXT NOT NULL,
    rank       INTEGER NOT NULL,
    needs      TEXT NOT NULL,
    tenant     TEXT,
    turn       INTEGER NOT NULL,
    holder     INTEGER,
    blocked    INTEGER,
    idle       INTEGER NOT NULL DEFAULT 0,
    touched_at REAL NOT NULL,
    CONSTRAINT outlast_streams_ranges CHECK (
        rank BETWEEN -100 AND 100 AND turn >= 0 AND touched_at BETWEEN -1e15 AND 1e15
        AND (idle = 0 OR idle = 1 AND blocked IS NULL))
) STRICT;
CREATE INDEX outlast_streams_open ON outlast_streams (task, queue, rank, turn, blocked, idle)
    WHERE blocked IS NULL AND idle = 0;
CREATE INDEX outlast_streams_blocked ON outlast_streams (blocked, rank, turn) WHERE blocked IS NOT NULL;
CREATE INDEX outlast_streams_idle ON outlast_streams (touched_at) WHERE idle = 1;

CREATE TABLE outlast_tasks (
    name     TEXT PRIMARY KEY,
    limits   TEXT NOT NULL,
    fair     INTEGER NOT NULL,
    aging    REAL,
    priority INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- An attempt under limits releases its permits in the transaction that ends it, whichever verb that is. A refused end
-- changes no row, and releases nothing. Each end writes ended_at, even one that leads back to the queue, and a claim
-- does not: so the trigger costs unlimited jobs little, and a claim nothing. A job with keep = 0 is deleted as it ends.
CREATE TRIGGER outlast_jobs_ended AFTER UPDATE OF ended_at ON outlast_jobs
WHEN OLD.stream IS NOT NULL AND OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    UPDATE outlast_permits
    SET used = max(0, used - 1), freed = EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
    WHERE id IN (SELECT json_extract(OLD.needs, e.fullkey || '[0]') FROM json_each(OLD.needs) AS e);
END;
CREATE TRIGGER outlast_jobs_gone AFTER DELETE ON outlast_jobs
WHEN OLD.stream IS NOT NULL AND OLD.state = 'running'
BEGIN
    UPDATE outlast_permits
    SET used = max(0, used - 1), freed = EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
    WHERE id IN (SELECT json_extract(OLD.needs, e.fullkey || '[0]') FROM json_each(OLD.needs) AS e);
    UPDATE outlast_streams SET blocked = NULL WHERE id = OLD.stream AND blocked = -2;
END;
-- A place of a permit is kept for a stream no longer than a job waits in it.
CREATE TRIGGER outlast_jobs_left AFTER UPDATE OF ended_at, stream ON outlast_jobs
WHEN OLD.position IS NOT NULL AND OLD.stream IS NOT NULL AND instr(OLD.needs, '],[') > 0
BEGIN
    UPDATE outlast_permits
    SET kept_for = NULL, opens_at = nullif(opens_at, kept_until),
        freed = EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
    WHERE kept_for = OLD.stream
      AND id IN (SELECT json_extract(OLD.needs, e.fullkey || '[0]') FROM json_each(OLD.needs) AS e)
      AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
                      WHERE j.task = OLD.task AND j.queue = OLD.queue AND j.stream = OLD.stream
                        AND j.stream IS NOT NULL AND j.position IS NOT NULL);
END;
-- A job that gets a position again, for example after a retry, opens its stream. Each statement that gives a position
-- writes run_at, and a claim does not. (Enqueuing opens streams itself, each once for all its jobs.)
CREATE TRIGGER outlast_jobs_arrived AFTER UPDATE OF run_at ON outlast_jobs
WHEN NEW.stream IS NOT NULL AND NEW.position IS NOT NULL AND OLD.position IS NULL
BEGIN
    INSERT INTO outlast_streams (id, task, queue, rank, needs, tenant, turn, touched_at)
    VALUES (NEW.stream, NEW.task, NEW.queue, iif(NEW.aged IS NULL, -NEW.priority, 0), NEW.needs, NEW.tenant,
            (SELECT value FROM outlast_sequences WHERE name = 'turn'), NEW.run_at)
    ON CONFLICT (id) DO UPDATE
    SET idle = 0, blocked = nullif(blocked, -2), touched_at = iif(idle, excluded.touched_at, touched_at),
        tenant = iif(idle OR tenant = excluded.tenant, excluded.tenant, NULL)
    WHERE idle = 1 OR blocked = -2 OR tenant IS NOT NULL AND tenant IS NOT excluded.tenant;
END;
-- The end of an attempt, or of a job that waits to run again, opens an ordered stream (",true]" in the text of its
-- needs): its holder may be gone. If a key contains that text, a stream is checked once too often.
CREATE TRIGGER outlast_jobs_order AFTER UPDATE OF ended_at ON outlast_jobs
WHEN OLD.stream IS NOT NULL AND instr(OLD.needs, ',true]') > 0
BEGIN
    UPDATE outlast_streams SET blocked = NULL WHERE id = OLD.stream AND blocked = -2;
END;

-- The states 0 and 4 occur on PostgreSQL only.
CREATE TABLE outlast_dependencies (
    job_id      INTEGER NOT NULL,
    upstream_id INTEGER NOT NULL,
    wants       INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    place       INTEGER NOT NULL,
    PRIMARY KEY (job_id, place),
    CONSTRAINT outlast_dependencies_sound CHECK (wants BETWEEN 0 AND 2 AND state BETWEEN 0 AND 3 AND job_id <> upstream_id)
) WITHOUT ROWID, STRICT;
CREATE INDEX outlast_dependencies_left ON outlast_dependencies (job_id, state) WHERE state <> 2;
CREATE INDEX outlast_dependencies_upstream ON outlast_dependencies (upstream_id, state);
CREATE TABLE outlast_upstream_notices (id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, event TEXT) STRICT;
CREATE TRIGGER outlast_jobs_awaited AFTER UPDATE OF ended_at ON outlast_jobs
WHEN OLD.awaited = 1 AND ((OLD.ended_at IS NULL) <> (NEW.ended_at IS NULL) OR NEW.state = 'completed')
BEGIN
    INSERT INTO outlast_upstream_notices (job_id) VALUES (NEW.id);
END;

CREATE TABLE outlast_windows (
    key    TEXT NOT NULL,
    task   TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    until  REAL NOT NULL,
    PRIMARY KEY (key, task),
    CONSTRAINT outlast_windows_until CHECK (until BETWEEN -1e15 AND 1e15)
) WITHOUT ROWID, STRICT;
CREATE INDEX outlast_windows_until ON outlast_windows (until);
CREATE TABLE outlast_events (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    at    REAL NOT NULL,
    CONSTRAINT outlast_events_at CHECK (at BETWEEN -1e15 AND 1e15)
) STRICT;
CREATE INDEX outlast_events_at ON outlast_events (at);
CREATE TABLE outlast_waits (
    job_id INTEGER PRIMARY KEY,
    token  INTEGER NOT NULL,
    event  TEXT NOT NULL,
    woken  INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT outlast_waits_woken CHECK (woken IN (0, 1))
) STRICT;
CREATE INDEX outlast_waits_event ON outlast_waits (event, woken);

CREATE TABLE outlast_labels (
    job_id INTEGER NOT NULL,
    label  TEXT NOT NULL,
    PRIMARY KEY (job_id, label)
) WITHOUT ROWID, STRICT;
CREATE INDEX outlast_labels_name ON outlast_labels (label, job_id);

CREATE TABLE outlast_attempts (
    token          INTEGER PRIMARY KEY,
    job_id         INTEGER NOT NULL,
    number         INTEGER NOT NULL,
    worker_id      INTEGER,
    worker         TEXT,
    host           TEXT,
    pid            INTEGER,
    outcome        TEXT NOT NULL,
    charge         TEXT NOT NULL,
    message        TEXT NOT NULL DEFAULT '',
    started_at     REAL NOT NULL,
    ended_at       REAL NOT NULL,
    progress       TEXT,
    checkpoint_age REAL,
    crash          TEXT,
    repeats        INTEGER NOT NULL DEFAULT 1,
    dropped        INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT outlast_attempts_charge CHECK (charge IN ('none', 'failure', 'loss')),
    CONSTRAINT outlast_attempts_ranges CHECK (
        number >= 0 AND started_at BETWEEN -1e15 AND 1e15 AND ended_at BETWEEN -1e15 AND 1e15
        AND checkpoint_age BETWEEN -1e16 AND 1e16 AND repeats BETWEEN 1 AND 2147483647
        AND dropped BETWEEN 0 AND 2147483647)
) STRICT;
CREATE INDEX outlast_attempts_job ON outlast_attempts (job_id, number);

CREATE TABLE outlast_logs (
    token   INTEGER PRIMARY KEY,
    job_id  INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    printed INTEGER NOT NULL DEFAULT 0,
    lines   TEXT NOT NULL,
    CONSTRAINT outlast_logs_counts CHECK (
        number BETWEEN 0 AND 2147483647 AND printed BETWEEN 0 AND 2147483647)
) STRICT;
CREATE INDEX outlast_logs_job ON outlast_logs (job_id, token);

CREATE TABLE outlast_steps (
    job_id INTEGER NOT NULL,
    name   TEXT NOT NULL,
    token  INTEGER NOT NULL,
    value  TEXT NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (job_id, name),
    CONSTRAINT outlast_steps_at CHECK (at BETWEEN -1e15 AND 1e15)
) STRICT;

CREATE TABLE outlast_workers (
    id               INTEGER PRIMARY KEY,
    name             TEXT NOT NULL,
    host             TEXT NOT NULL,
    pid              INTEGER NOT NULL,
    boot_id          TEXT NOT NULL,
    status           TEXT NOT NULL DEFAULT 'active',
    epoch            INTEGER NOT NULL DEFAULT 1,
    beat             INTEGER NOT NULL DEFAULT 0,
    heartbeat        REAL NOT NULL,
    lease            REAL NOT NULL,
    queues           TEXT NOT NULL DEFAULT '[]',
    tasks            TEXT NOT NULL DEFAULT '[]',
    tags             TEXT NOT NULL DEFAULT '[]',
    lacks            TEXT NOT NULL DEFAULT '{}',
    instance         TEXT,
    registration     TEXT UNIQUE,
    release          TEXT,
    started_at       REAL NOT NULL,
    heartbeat_at     REAL NOT NULL,
    lease_expires_at REAL NOT NULL,
    stopped_at       REAL,
    cause            TEXT,
    begun            INTEGER,
    drain_requested  INTEGER NOT NULL DEFAULT 0,
    stacks           TEXT,
    presence         TEXT,
    presence_off     TEXT,
    wakeup           TEXT,
    failing          TEXT,
    failing_since    REAL,
    acknowledged_pauses TEXT,
    lock_path        TEXT,
    lock_device      INTEGER,
    lock_inode       INTEGER,
    CONSTRAINT outlast_workers_status CHECK (status IN ('active', 'draining', 'stopped', 'lost')),
    CONSTRAINT outlast_workers_lease CHECK (
        heartbeat > 0 AND lease >= 3 * heartbeat AND lease <= 1e15),
    CONSTRAINT outlast_workers_times CHECK (
        started_at BETWEEN -1e15 AND 1e15 AND heartbeat_at BETWEEN -1e15 AND 1e15
        AND lease_expires_at BETWEEN -1e16 AND 1e16 AND stopped_at BETWEEN -1e15 AND 1e15
        AND failing_since BETWEEN -1e16 AND 1e16),
    CONSTRAINT outlast_workers_stopped
        CHECK ((status IN ('stopped', 'lost')) = (stopped_at IS NOT NULL))
) STRICT;
CREATE INDEX outlast_workers_status_ix ON outlast_workers (status);
CREATE INDEX outlast_workers_gone ON outlast_workers (stopped_at) WHERE stopped_at IS NOT NULL;

CREATE TABLE outlast_refusals (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id    INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    verb      TEXT NOT NULL,
    at        REAL NOT NULL,
    late_by   REAL
) STRICT;
CREATE INDEX outlast_refusals_job ON outlast_refusals (job_id);

CREATE TABLE outlast_schedules (
    name          TEXT PRIMARY KEY,
    call          TEXT NOT NULL,
    spec          TEXT NOT NULL,
    overlap       TEXT NOT NULL,
    catch_up      TEXT NOT NULL,
    grace         REAL NOT NULL,
    origin        TEXT NOT NULL,
    version       TEXT NOT NULL,
    versions      TEXT NOT NULL DEFAULT '',
    revision      INTEGER NOT NULL,
    paused        INTEGER NOT NULL DEFAULT 0,
    declared      INTEGER NOT NULL DEFAULT 1,
    declared_at   REAL,
    since         REAL NOT NULL,
    next_tick     REAL,
    owed          TEXT NOT NULL DEFAULT '',
    last_tick     REAL,
    last_job      INTEGER,
    fired         INTEGER NOT NULL DEFAULT 0,
    skipped       INTEGER NOT NULL DEFAULT 0,
    missed        INTEGER NOT NULL DEFAULT 0,
    last_skip     REAL,
    last_skip_job INTEGER,
    CONSTRAINT outlast_schedules_origin CHECK ((origin = 'run_time') = (declared_at IS NULL)),
    CONSTRAINT outlast_schedules_flags CHECK (paused BETWEEN 0 AND 1 AND declared BETWEEN 0 AND 1),
    CONSTRAINT outlast_schedules_times CHECK (
        grace BETWEEN 0 AND 1e15 AND declared_at BETWEEN -1e15 AND 1e15 AND since BETWEEN -1e15 AND 1e15
        AND next_tick BETWEEN -1e15 AND 1e15 AND last_tick BETWEEN -1e15 AND 1e15
        AND last_skip BETWEEN -1e15 AND 1e15),
    CONSTRAINT outlast_schedules_counts CHECK (
        fired BETWEEN 0 AND 1000000000000000 AND skipped BETWEEN 0 AND 1000000000000000
        AND missed BETWEEN 0 AND 1000000000000000)
) WITHOUT ROWID, STRICT;
CREATE INDEX outlast_schedules_next ON outlast_schedules (next_tick, name)
    WHERE paused = 0 AND declared = 1 AND next_tick IS NOT NULL;
CREATE INDEX outlast_schedules_declared ON outlast_schedules (declared_at) WHERE declared_at IS NOT NULL;

CREATE TABLE outlast_pauses (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    paused_at REAL NOT NULL,
    paused_by TEXT,
    reason    TEXT,
    stop      INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT outlast_pauses_once UNIQUE (kind, name),
    CONSTRAINT outlast_pauses_kind CHECK (
        kind IN ('queue', 'task', 'tenant', 'all') AND (kind = 'all') = (name = '')),
    CONSTRAINT outlast_pauses_ranges CHECK (
        id BETWEEN 0 AND 1e15 AND paused_at BETWEEN -1e15 AND 1e15 AND (stop = 0 OR stop = 1))
) STRICT;

CREATE TABLE outlast_minutes (
    level     TEXT NOT NULL,
    worker_id INTEGER NOT NULL,
    batch     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    queue     TEXT NOT NULL,
    task      TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    jobs      INTEGER NOT NULL,
    firsts    INTEGER NOT NULL,
    seconds   REAL NOT NULL,
    waited    REAL NOT NULL,
    d1 INTEGER NOT NULL, d2 INTEGER NOT NULL, d3 INTEGER NOT NULL, d4 INTEGER NOT NULL, d5 INTEGER NOT NULL,
    d6 INTEGER NOT NULL, d7 INTEGER NOT NULL, d8 INTEGER NOT NULL, d9 INTEGER NOT NULL,
    d10 INTEGER NOT NULL, d11 INTEGER NOT NULL,
    w1 INTEGER NOT NULL, w2 INTEGER NOT NULL, w3 INTEGER NOT NULL, w4 INTEGER NOT NULL, w5 INTEGER NOT NULL,
    w6 INTEGER NOT NULL, w7 INTEGER NOT NULL, w8 INTEGER NOT NULL, w9 INTEGER NOT NULL,
    w10 INTEGER NOT NULL, w11 INTEGER NOT NULL,
    PRIMARY KEY (level, worker_id, batch, kind, queue, task, outcome),
    CONSTRAINT outlast_minutes_level CHECK (level IN ('worker', 'minute', 'total')),
    CONSTRAINT outlast_minutes_ranges CHECK (
        at BETWEEN 0 AND 100000000000000
        AND seconds BETWEEN 0 AND 1e14 AND waited BETWEEN 0 AND 1e14
        AND min(jobs, firsts,
                 d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10,
                 w11) >= 0
        AND max(jobs, firsts,
                    d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5, w6, w7, w8, w9,
                    w10, w11) <= 100000000000000)
) STRICT;
CREATE INDEX outlast_minutes_at ON outlast_minutes (level, at);

CREATE TABLE outlast_actions (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        REAL NOT NULL,
    actor     TEXT NOT NULL,
    verb      TEXT NOT NULL,
    target    TEXT NOT NULL DEFAULT '',
    job_id    INTEGER,
    filter    TEXT,
    reason    TEXT,
    counts    TEXT NOT NULL DEFAULT '{}',
    state     TEXT NOT NULL DEFAULT 'done',
    expected  INTEGER,
    up_to_id  INTEGER,
    as_of     REAL,
    before_id INTEGER,
    moved_at  REAL NOT NULL,
    CONSTRAINT outlast_actions_state CHECK (state IN ('done', 'running', 'stopped')),
    CONSTRAINT outlast_actions_ranges CHECK (
        id BETWEEN 0 AND 1e15 AND at BETWEEN -1e15 AND 1e15 AND as_of BETWEEN -1e15 AND 1e15
        AND moved_at BETWEEN -1e15 AND 1e15)
) STRICT;
CREATE INDEX outlast_actions_running ON outlast_actions (id) WHERE state = 'running';
CREATE INDEX outlast_actions_actor ON outlast_actions (actor, id);

CREATE TABLE outlast_schema (
    number          INTEGER PRIMARY KEY,
    name            TEXT NOT NULL,
    checksum        TEXT NOT NULL,
    compatible_from TEXT NOT NULL,
    applied_at      REAL NOT NULL,
    store_id        TEXT,
    CONSTRAINT outlast_schema_id CHECK ((number = 1) = (store_id IS NOT NULL))
) STRICT;

CREATE VIEW outlast_history AS
SELECT a.job_id, a.token, a.number, a.worker_id, a.worker, a.host, a.pid, a.outcome, a.charge,
       a.started_at, a.ended_at
FROM outlast_attempts AS a
UNION ALL
SELECT j.id, j.token, j.attempt_count, j.completed_by, w.name, w.host, NULL, 'completed', 'none',
       j.started_at, j.ended_at
FROM outlast_jobs AS j LEFT JOIN outlast_workers AS w ON w.id = j.completed_by
WHERE j.state = 'completed';

\ir functions/outlast_refuse_args_v1.sql
\ir functions/outlast_enqueue_v1.sql
\ir functions/outlast_send_event_v1.sql
