-- Name the sequences whose next number is not above the rows of their table, and, if asked, raise them. Logical
-- replication, COPY and the like bring rows without the sequences of their server. Tokens are not checked: they jump to
-- the time of day in any case (outlast_raise_tokens_v1).
--
-- An id continues 10,000 above the largest. Positions (which also number the revisions of schedules) and turns have no
-- index that shows the largest. So as soon as any sequence is behind, or one of the first thousand entries of an index
-- is above its sequence, both jump to the time of day in microseconds, which no server reaches by counting. Positions,
-- turns and ids that are ahead of that time are ignored: otherwise any role that may write a row could use up a
-- sequence with one number.
--
-- Rows that came in this way may have come without their lanes (outlast_thin_lanes_v1).
--
-- Against a concurrent enqueue, claim, reap or late worker: this locks no row of theirs. A sequence is read after the
-- rows, so none is wrongly judged to be behind. Sequences are not transactional: numbers that others draw between the
-- read and setval lie within the 10,000, and the lock on the incarnation's row lets one session raise at a time. A
-- session that drew a taken number before the jump has failed, and has stored nothing.
CREATE FUNCTION outlast_raise_numbers_v1(p_raise boolean) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_now bigint := date_part('epoch', clock_timestamp()) * 1000000;
    v_behind text[] := '{}';
    v_table regclass;
    v_ids regclass;
    v_largest bigint;
BEGIN
    IF p_raise THEN PERFORM FROM outlast_incarnation FOR UPDATE; END IF;
    FOR v_table, v_ids IN
        SELECT c.oid, pg_get_serial_sequence(c.oid::regclass::text, 'id')
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id' AND a.attidentity <> ''
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'outlast\_%' AND c.relkind = 'r'
    LOOP
        EXECUTE format('SELECT t.largest FROM (SELECT id AS largest FROM %s WHERE id < %s ORDER BY id DESC LIMIT 1) t, %s s
                        WHERE t.largest > s.last_value OR t.largest = s.last_value AND NOT s.is_called',
                       v_table, v_now, v_ids) INTO v_largest;
        CONTINUE WHEN v_largest IS NULL;
        v_behind := array_append(v_behind, v_ids::text);
        IF p_raise THEN PERFORM setval(v_ids, v_largest + 10000); END IF;
    END LOOP;
    PERFORM FROM outlast_position_seq q, (
        (SELECT position FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NULL LIMIT 1000)
        UNION ALL
        (SELECT position FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NOT NULL LIMIT 1000)) j
    WHERE j.position < v_now AND (j.position > q.last_value OR j.position = q.last_value AND NOT q.is_called);
    IF FOUND THEN v_behind := array_append(v_behind, 'outlast_position_seq'); END IF;
    PERFORM FROM outlast_turn_seq q, (SELECT turn FROM outlast_streams LIMIT 1000) s
    WHERE s.turn < v_now AND (s.turn > q.last_value OR s.turn = q.last_value AND NOT q.is_called);
    IF FOUND THEN v_behind := array_append(v_behind, 'outlast_turn_seq'); END IF;
    IF p_raise AND v_behind <> '{}' THEN
        PERFORM setval('outlast_position_seq', v_now) FROM outlast_position_seq WHERE last_value < v_now;
        PERFORM setval('outlast_turn_seq', v_now) FROM outlast_turn_seq WHERE last_value < v_now;
        PERFORM outlast_thin_lanes_v1();
    END IF;
    RETURN v_behind;
END
$$;
