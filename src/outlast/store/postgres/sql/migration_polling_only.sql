-- What differs in a store that is polling only: its server refuses LISTEN, advisory locks or unlogged tables. Latency is
-- lost and nothing else. The migrator runs this in the transaction of each step, after it; a released function that
-- is replaced by its next version is replaced here as well.

-- name: mark
-- Make the store polling only; changes nothing where it is. Whether the incarnation's table is logged says which store
-- this is. Exchanges and changes of limits have the locks of before or those of after: both tables are locked, and
-- each of them touches one.
LOCK TABLE outlast_workers, outlast_limits IN ACCESS EXCLUSIVE MODE;
ALTER TABLE outlast_incarnation SET LOGGED;
INSERT INTO outlast_latches SELECT generate_series(-1, 1023) ON CONFLICT DO NOTHING;

-- A logged row survives the recovery from a crash, so the home must not: it ends with when the server's statistics
-- began, which every recovery resets, in the same run of the server. A reset by hand draws another incarnation, which
-- does no harm. Statistics outlive a clean stop; then the start of the server differs.
CREATE OR REPLACE FUNCTION outlast_home_v1() RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()), pg_relation_filepath('outlast_incarnation'),
                     extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))
$$;

CREATE OR REPLACE FUNCTION outlast_tell_v1(p_payload text) RETURNS void
LANGUAGE sql
AS $$
    SELECT ''::void
$$;

CREATE OR REPLACE FUNCTION outlast_hold_presence_v1(
    p_worker bigint, p_registration text, p_port integer, p_backend integer) RETURNS text
LANGUAGE sql
AS $$
    SELECT 'the store is polling only'
$$;

-- Keys share 1,024 rows, so two keys may wait for each other, or pass each other over, needlessly. Who waits takes the
-- row -1 first: of those that wait for one lock while they hold another there is one at a time, and no cycle. Who
-- tries waits for no one.
CREATE OR REPLACE FUNCTION outlast_lock_v1(p_key bigint) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM outlast_latches WHERE id = -1 FOR UPDATE;
    PERFORM FROM outlast_latches WHERE id = (p_key & 1023)::integer FOR UPDATE;
END
$$;

CREATE OR REPLACE FUNCTION outlast_try_lock_v1(p_key bigint) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM outlast_latches WHERE id = (p_key & 1023)::integer FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END
$$;

CREATE OR REPLACE FUNCTION outlast_try_share_v1(p_key bigint) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM outlast_latches WHERE id = (p_key & 1023)::integer FOR SHARE SKIP LOCKED;
    RETURN FOUND;
END
$$;

-- name: is_so
-- Whether the store is polling only. Reads only the catalog.
SELECT relpersistence = 'p' FROM pg_catalog.pg_class WHERE oid = 'outlast_incarnation'::regclass

-- name: try_unlogged
CREATE UNLOGGED TABLE outlast_tried ()

-- name: try_locks
-- The lock of a session is given back in the same statement, so that no pooler keeps it.
SELECT pg_try_advisory_xact_lock_shared(0), pg_try_advisory_lock_shared(0) AND pg_advisory_unlock_shared(0)

-- name: try_notify
SELECT pg_notify('outlast_tried', '')

-- name: try_listen
LISTEN outlast_tried

-- name: turn
-- Become the one migrator of a store without advisory locks, to the end of the transaction.
LOCK TABLE outlast_schema IN SHARE ROW EXCLUSIVE MODE
