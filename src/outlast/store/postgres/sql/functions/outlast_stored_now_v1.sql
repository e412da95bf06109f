-- Return whether this transaction, its savepoints included, has written a row that its statement sees: p_xmin is the
-- row's xmin. A row that a statement sees and whose transaction is under way can only be this transaction's own. xmin
-- has only the lower half of an id; this transaction's id gives the upper one. A savepoint has an id of its own, above
-- that of its transaction; an id far above is an old one.
CREATE FUNCTION outlast_stored_now_v1(p_xmin xid) RETURNS boolean
LANGUAGE sql
AS $$
    SELECT CASE WHEN t.above < 2147483648 THEN pg_xact_status((t.id + t.above)::text::xid8) = 'in progress' ELSE false END
    FROM (SELECT i.id, (p_xmin::text::bigint - i.id) & 4294967295 AS above
          FROM (SELECT pg_current_xact_id()::text::bigint AS id) i) t
$$;
