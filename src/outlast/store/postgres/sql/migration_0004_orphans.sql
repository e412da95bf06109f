-- 0004 orphans: find running jobs that no worker runs, and give them back.
-- compatible_from: 0.1

-- The facts to decide on, of exactly these attempts as far as they are current, with their rows
-- locked by joining on id, token and state. Rows that are locked are left for later. A worker
-- that is alive hands in its end through the same lock: the first one closes the attempt, the
-- other finds its token not running and is refused.
CREATE FUNCTION outlast_facts_v1(
    p_ids bigint[], p_tokens bigint[], p_limit integer DEFAULT NULL)
RETURNS TABLE (
    job_id bigint, token bigint, failures integer, losses integer, policy text,
    cancel_requested boolean, solo smallint, incident bigint, cohort bigint, worker_id bigint,
    worker text, host text, progress text, checkpoint_age double precision, cause text,
    task text, queue text, attempts integer, began boolean)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.id, j.token, j.failures, j.losses, j.policy, j.cancel_requested, j.solo,
           j.incident, j.cohort, j.worker_id, w.name, w.host, j.progress,
           outlast_seconds_v1(clock_timestamp(), j.checkpoint_at),
           w.cause, j.task, j.queue, j.attempt_count, coalesce(j.token <= w.begun, true)
    FROM unnest(p_ids, p_tokens) AS o (id, token)
    JOIN outlast_jobs j ON j.id = o.id AND j.token = o.token AND j.state = 'running'
    LEFT JOIN outlast_workers w ON w.id = j.worker_id
    LIMIT p_limit FOR NO KEY UPDATE OF j SKIP LOCKED;
END
$$;

-- The workers that running jobs name and that are not alive or have no row: looked for in the gaps
-- between those that are alive, one probe for each gap and one more for each that is found. What an
-- alive worker has run stays in the index until a vacuum may take it, and while any transaction
-- is open, none may: a scan that meets a live worker walks over all of that (a look each
-- second took 345 ms behind 1,200,000 such entries, 245 on the processor; in the gaps it meets none).
CREATE FUNCTION outlast_gone_v1() RETURNS SETOF bigint
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE gap (low, high) AS MATERIALIZED (
        SELECT a.id, lead(a.id, 1, 9223372036854775807) OVER (ORDER BY a.id)
        FROM (SELECT 0::bigint AS id
              UNION ALL
              SELECT w.id FROM outlast_workers w WHERE w.status IN ('active', 'draining')) a
    ), holder (id, high) AS (
        SELECT g.low, g.high FROM gap g
        UNION ALL
        SELECT n.id, h.high
        FROM holder h
        CROSS JOIN LATERAL (
            SELECT j.worker_id AS id FROM outlast_jobs j
            WHERE j.worker_id > h.id AND j.worker_id < h.high ORDER BY j.worker_id LIMIT 1) n)
    SELECT h.id FROM holder h
    WHERE NOT EXISTS (SELECT FROM gap g WHERE g.low = h.id);
END
$$;

-- Running jobs whose worker is not alive or has no row, longest-running first: locked, with the
-- facts to decide on. The list of (id, token) is made first and without locks; then rows are locked
-- by joining on both. A plain "NOT EXISTS (live worker)" under the lock would check the newest
-- version of the row against the old snapshot of the workers, miss a worker that registered
-- meanwhile and rob it. A worker that was lost or stopped never comes back, so a pair that was an
-- orphan once stays one until its token changes. Rows that are locked are left for later, and the
-- list is a hundred times as long as what is wanted of it: those that are held, as by transactions of
-- tasks that outlive their worker, are not to hide those behind them.
CREATE FUNCTION outlast_orphans_v1(p_limit integer)
RETURNS TABLE (
    job_id bigint, token bigint, failures integer, losses integer, policy text,
    cancel_requested boolean, solo smallint, incident bigint, cohort bigint, worker_id bigint,
    worker text, host text, progress text, checkpoint_age double precision, cause text,
    task text, queue text, attempts integer, began boolean)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
BEGIN
    WITH orphan AS MATERIALIZED (
        SELECT j.id, j.token
        FROM outlast_gone_v1() AS g (id) JOIN outlast_jobs j ON j.worker_id = g.id
        ORDER BY j.started_at LIMIT 100 * p_limit)
    SELECT array_agg(o.id), array_agg(o.token) INTO v_ids, v_tokens FROM orphan o;
    RETURN QUERY SELECT * FROM outlast_facts_v1(v_ids, v_tokens, p_limit);
END
$$;

-- What no worker looks after, told by a few probes of indexes, for the look that each worker takes all
-- the time: whether there are orphans, whether an attempt is past its hard deadline by p_slack
-- seconds, the clock that says so, in how many seconds a job that is in no line falls due (0 where a
-- suspect waits, which may be due), and the highest position ever drawn: if that has not changed,
-- nothing new stands in any line, but what a transaction has drawn before and committed since. (The
-- line itself is not looked at: this would walk over its dead entries.) Reads only, and holds nothing:
-- a worker that is told here that there is something looks again, with the locks of orphans and facts. What
-- comes up after this is seen by the next look.
CREATE FUNCTION outlast_astray_v1(
    p_slack double precision,
    OUT orphans boolean, OUT overdue boolean, OUT now double precision,
    OUT next_due double precision, OUT drawn bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    orphans := EXISTS (SELECT FROM outlast_gone_v1());
    overdue := EXISTS (
        SELECT FROM outlast_jobs j
        WHERE j.hard_deadline < v_now - p_slack * interval '1 second' AND j.state = 'running');
    now := extract(epoch FROM v_now);
    SELECT outlast_seconds_v1(j.run_at, v_now) INTO next_due
    FROM outlast_jobs j WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
    ORDER BY j.run_at LIMIT 1;
    IF EXISTS (SELECT FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0) THEN
        next_due := 0;
    END IF;
    drawn := coalesce(pg_sequence_last_value('outlast_position_seq'), 0);  -- USAGE is enough for it
END
$$;

-- Close attempts as decided (see 0002) and wake listeners; returns those that were closed.
CREATE FUNCTION outlast_close_v1(p_ends text, p_notify boolean)
RETURNS TABLE (job_id bigint, token bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
    v_runnable bigint[];
    v_clears bigint[];
BEGIN
    SELECT array_agg(e.job_id), array_agg(e.token), array_agg(e.job_id) FILTER (WHERE e.runnable),
           array_agg(e.clears) FILTER (WHERE e.clears IS NOT NULL)
    INTO v_ids, v_tokens, v_runnable, v_clears
    FROM outlast_end_v1(p_ends) e;
    IF v_clears IS NOT NULL THEN
        v_runnable := v_runnable || outlast_clear_v1(v_clears);
    END IF;
    IF p_notify AND v_runnable IS NOT NULL THEN
        PERFORM outlast_notify_v1(v_runnable);
    END IF;
    RETURN QUERY SELECT c.job_id, c.token FROM unnest(v_ids, v_tokens) AS c (job_id, token);
END
$$;

-- Release own running jobs that the worker does not hold: claims whose reply was lost. The
-- worker's row is held at its epoch as by an exchange, so a worker that was reaped or has
-- reconnected since releases nothing. An exchange of the same epoch that is still under way would
-- be released too: the worker calls this only when it has none, or after a reconnect, which has
-- waited for it. A job that was closed or taken over since has another token and is not touched.
CREATE FUNCTION outlast_reconcile_v1(
    p_worker bigint, p_epoch integer, p_held bigint[], p_notify boolean, p_registration text)
RETURNS TABLE (job_id bigint, token bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ends json;
BEGIN
    PERFORM FROM outlast_workers w
    WHERE w.id = p_worker AND w.epoch = p_epoch AND w.status IN ('active', 'draining')
      AND w.registration IS NOT DISTINCT FROM p_registration
    FOR KEY SHARE;
    IF NOT FOUND THEN RETURN; END IF;

    SELECT json_agg(json_build_object(
               'job_id', j.id, 'token', j.token, 'state', 'queued', 'outcome', 'released',
               'charge', 'none', 'failures', j.failures, 'losses', j.losses,
               'message', 'its worker does not know of it',
               'solo', j.solo, 'incident', j.incident, 'cohort', j.cohort))
    INTO v_ends
    FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.token <> ALL (p_held);
    IF v_ends IS NOT NULL THEN
        RETURN QUERY SELECT c.job_id, c.token FROM outlast_close_v1(v_ends::text, p_notify) c;
    END IF;
END
$$;

-- The row of a worker that is gone may still be locked: by an exchange that is under way, for a moment;
-- by one whose client does not read its reply, for as long as the connection is believed in. That reply
-- has no reader any more: such a session is ended, and with it its transaction is undone, as if it had
-- never asked. Answers how many were ended, or NULL where the row has changed since it was seen.
--
-- Who holds the row is told by the row itself (xmax: one transaction, or a list of them; the number of
-- one may look like that of a list). What is ended is certain by more than that: a session of this role
-- in this database that is in the middle of an exchange and waits for its client to read. A worker that
-- lives after all finds its connection broken, and then its row lost; nothing that it was told is undone.
CREATE FUNCTION outlast_free_v1(p_worker bigint, p_beat bigint) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_xmax xid;
    v_holders xid[];
BEGIN
    SELECT w.xmax INTO v_xmax FROM outlast_workers w
    WHERE w.id = p_worker AND w.beat = p_beat AND w.status IN ('active', 'draining');
    IF NOT FOUND THEN RETURN NULL; END IF;
    BEGIN
        SELECT array_agg(m.xid) INTO v_holders FROM pg_get_multixact_members(v_xmax) m;
    EXCEPTION WHEN OTHERS THEN  -- it is one transaction, or a list that is no more
        v_holders := '{}';
    END;
    RETURN (
        SELECT count(pg_terminate_backend(a.pid))
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.usename = current_user
          AND a.wait_event = 'ClientWrite' AND a.query LIKE '%outlast_exchange_v1%'
          AND a.pid IN (SELECT l.pid FROM pg_locks l
                        WHERE l.locktype = 'transactionid' AND l.granted
                          AND l.transactionid = ANY (v_holders || v_xmax)));
END
$$;

-- What is written on a worker's row is committed without waiting for a standby. Where a synchronous
-- standby is away, each commit that waits for it waits without end, past statement_timeout, and keeps its
-- row locked meanwhile: one beat, or any other write of that row, would hold up all later beats,
-- and the worker would end healthy attempts for want of them.
--
-- Why that is enough. What a failover to the standby may take back is the last few writes of workers'
-- rows, never one that something lasting rests on: claims, ends and reclaims do wait, and what was logged
-- before them has arrived before them. A beat that was taken back shortens no lease: it is another
-- incarnation of the database that answers then, and an observer starts anew. A worker whose
-- row is not there, or is at an earlier epoch or status, registers or reconnects as after any loss; one
-- that had been found gone and is active again beats on, with all its jobs, or is found gone again.
-- With synchronous_commit = off it stays off.
--
-- Nothing that writes such a row changes a job in the same transaction, so this lessens no promise.
CREATE FUNCTION outlast_commit_locally_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') <> 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER outlast_workers_commit_locally BEFORE UPDATE ON outlast_workers
FOR EACH STATEMENT EXECUTE FUNCTION outlast_commit_locally_v1();

-- Renew a lease and look for requests (cancel, drain); no row: the lease is lost. A plain update does not
-- conflict with the KEY SHARE of an exchange. It waits for a reap or a reconnect (FOR UPDATE) and then
-- checks the status again: a worker that was reaped meanwhile is not renewed.
--
-- It waits for no synchronous standby, as said above. Should a failover take the beat back, observers see
-- another incarnation of the database and start anew, and the worker's next beat counts on from there.
--
-- And it does not wait for those that have locked the table of jobs, or wait for that (VACUUM FULL, CLUSTER, most
-- of ALTER TABLE): that may take longer than a lease, at whose end the worker would end healthy attempts.
-- Then this beat does not tell of cancels; a later one does. ACCESS SHARE is what the look takes anyway.
CREATE FUNCTION outlast_heartbeat_v1(p_worker bigint, p_registration text)
RETURNS TABLE (job_id bigint, token bigint, drain boolean)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_drain boolean;
BEGIN
    UPDATE outlast_workers w
    SET beat = w.beat + 1, heartbeat_at = statement_timestamp(),
        lease_expires_at = statement_timestamp() + least(w.lease, 1e9) * interval '1 second'
    WHERE w.id = p_worker AND w.registration IS NOT DISTINCT FROM p_registration
      AND w.status IN ('active', 'draining')
    RETURNING w.drain_requested INTO v_drain;
    IF NOT FOUND THEN RETURN; END IF;
    BEGIN
        LOCK TABLE outlast_jobs IN ACCESS SHARE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, v_drain;
        RETURN;
    END;
    RETURN QUERY
    SELECT j.id, j.token, v_drain
    FROM (SELECT) AS me
    LEFT JOIN outlast_jobs j ON j.worker_id = p_worker AND j.cancel_requested;
END
$$;

-- Presence: a lock that a live worker's session holds, and that is gone as soon as the session is.
--
-- Whose a lock is. Every role that may connect sees all advisory locks in pg_locks, with their keys, and
-- may take them: a session that waits for the key of a worker has it in the instant in which the worker
-- dies. So a lock counts only where the session that holds it is of the role that the worker's row
-- names. A role without rights on the tables is not that role, and cannot write the row. The role of a
-- session is shown to every role (pg_stat_get_activity hides what a session does and since when, not
-- whose it is), and stays the same for as long as the session lives. The number of its process would not
-- do: it may be given out again, and when that process started is hidden from other roles.
--
-- The orders in which that might go wrong.
--   The worker connects anew as the same role: its lock counts from the instant in which it has it, before
--     the row is written, and the role on the row stays true. As another role: its lock counts once the
--     row is committed, and is absent in a look before that. One look makes no worker gone; a reap in that
--     instant marks the worker lost, which finds that out as after any reap.
--   A stranger has the key before the worker (its session waited while the worker's was cut): the worker is
--     told whose session it is, says so, takes its presence off its row and tries again with each heartbeat.
--     Unknown proves nothing, so its beats decide. Until then it is absent and beats: no worker is gone
--     by absence alone.
--   A stranger has the key after a crash, a restart or a failover: the row names another incarnation, under
--     which no worker is held or absent, and only a worker that has its lock writes the present one.
--   The worker dies, and a stranger has the key: absent, as if the lock were free.
--   A worker is late under an id that was given out again, after the store was set back: the key is of
--     its registration, and so is the update of the row. It takes a lock that no look asks for.
-- Sessions are read after the rows, as locks are: one that holds a lock was there before the row that
-- tells of it was committed.

-- What names this run of this database: a lock taken in another one proves nothing here. A server that
-- is stopped and started has another start time. One that restarts by itself, after a process of its
-- own was killed, and a standby that is promoted keep theirs, and have lost the row of the unlogged
-- table, which is drawn anew. A database that was dropped and restored has another oid. NULL: in
-- recovery, where nothing can be written and locks are not those of the primary, and until the row is
-- drawn.
CREATE FUNCTION outlast_incarnation_v1() RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF pg_is_in_recovery() THEN RETURN NULL; END IF;
    RETURN (SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()), d.oid, i.id)
            FROM outlast_incarnation i JOIN pg_database d ON d.datname = current_database()
            WHERE i.home = i.tableoid);
END
$$;

-- The one key of a worker's lock: of this schema, so that two in one database do not collide, and of
-- one registration.
CREATE FUNCTION outlast_presence_key_v1(p_worker bigint, p_registration text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended(
        store_id::text || ':' || p_worker::text || ':' || coalesce(p_registration, ''), 0::bigint)
    FROM outlast_schema WHERE number = 1
$$;

-- All advisory locks of one bigint that are held in this database, as of now, and whose they are.
CREATE FUNCTION outlast_locks_v1()
RETURNS TABLE (key bigint, backend integer, role oid, application text)
LANGUAGE sql VOLATILE
AS $$
    SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid, a.usesysid, a.application_name
    FROM pg_locks l JOIN pg_stat_get_activity(NULL::integer) a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

-- All these locks as texts, KEY/ROLE.
CREATE FUNCTION outlast_presence_held_v1() RETURNS text[]
LANGUAGE sql VOLATILE
AS $$
    SELECT ARRAY(SELECT l.key::text || '/' || l.role::text FROM outlast_locks_v1() l)
$$;

-- What a look shows of a worker: from its row, where INCARNATION/ROLE stands, and from the database
-- that is here now.
CREATE FUNCTION outlast_presence_v1(
    p_worker bigint, p_registration text, p_presence text, p_here text, p_held text[]) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN starts_with(p_presence, p_here || '/') IS NOT TRUE THEN 'unknown'
                WHEN outlast_presence_key_v1(p_worker, p_registration)::text
                     || substr(p_presence, length(p_here) + 1) = ANY (p_held) THEN 'held'
                ELSE 'absent' END
$$;

-- Who has the lock that a worker asks for, in words: an earlier session of its role, or a stranger.
CREATE FUNCTION outlast_presence_taken_v1(p_key bigint, p_role oid) RETURNS text
LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(
        (SELECT 'the role ' || l.role::regrole::text || ' has taken its lock (process '
                || l.backend::text || ', application ' || quote_ident(l.application)
                || '): end that session with pg_terminate_backend, and keep the role from this database'
         FROM outlast_locks_v1() l WHERE l.key = p_key AND l.role <> p_role LIMIT 1),
        'an earlier session still has the lock')
$$;

-- Take the lock in this session, or prove that the session has it; then say so on the row, in this
-- order: a row that names the present incarnation had its lock. Answers NULL, or why it cannot be.
-- Behind a pooler the lock would belong to a session that outlives the worker or is lent to others.
-- p_port is the port of the client's own socket; NULL for a Unix socket, where the process that was
-- named at the start of the connection is compared with the one that answers.
CREATE FUNCTION outlast_hold_presence_v1(
    p_worker bigint, p_registration text, p_port integer, p_backend integer) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_key bigint := outlast_presence_key_v1(p_worker, p_registration);
    v_role oid := (SELECT a.usesysid FROM pg_stat_get_activity(pg_backend_pid()) a);
    v_here text;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN 'the server is in recovery';
    END IF;
    PERFORM outlast_begin_incarnation_v1();
    v_here := outlast_incarnation_v1();
    IF inet_client_port() IS DISTINCT FROM p_port
       OR (p_port IS NULL AND pg_backend_pid() IS DISTINCT FROM p_backend) THEN
        RETURN 'a pooler or proxy stands between';
    END IF;
    IF NOT EXISTS (SELECT FROM outlast_locks_v1() l
                   WHERE l.key = v_key AND l.backend = pg_backend_pid())
       AND NOT pg_try_advisory_lock(v_key) THEN
        RETURN outlast_presence_taken_v1(v_key, v_role);
    END IF;
    v_here := v_here || '/' || v_role::text;
    UPDATE outlast_workers SET presence = v_here, presence_off = NULL
    WHERE id = p_worker AND registration IS NOT DISTINCT FROM p_registration
      AND status IN ('active', 'draining')
      AND (presence IS DISTINCT FROM v_here OR presence_off IS NOT NULL);
    RETURN NULL;
END
$$;
