-- Add up what workers have counted, at most p_limit rows of each level. Rows of single workers move to minutes of all
-- workers and to the totals once they are p_worker_seconds old; minutes move to hours once they are p_minute_seconds
-- old. Hours, and totals to which nothing was added, are deleted after p_hour_seconds. Returns how many rows were
-- removed. Each row that is removed is added in the same commit, so that a reader counts it once.
--
-- Rows that another merge holds are skipped (SKIP LOCKED): one merge takes each row. Two merges add to the same rows
-- in the same order, so they do not deadlock: levels one after the other, and within a level in the order of the key.
-- The next merge takes a worker's row that arrives meanwhile. Numbers stop at 10^14, the limit of the table's own
-- CHECK, so that a row from elsewhere cannot make a merge fail.
CREATE FUNCTION outlast_merge_minutes_v1(
    p_limit integer, p_worker_seconds bigint, p_minute_seconds bigint, p_hour_seconds bigint)
RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_now bigint := floor(extract(epoch FROM statement_timestamp()));
    v_old tid[];
    v_count integer := 0;
    v_step record;
BEGIN
    FOR v_step IN
        SELECT * FROM (VALUES (1, 'worker', p_worker_seconds, '{minute,total}'::text[], '{60,0}'::bigint[]),
                              (2, 'minute', p_minute_seconds, '{hour}', '{3600}'))
            AS s (place, level, age, levels, widths) ORDER BY place
    LOOP
        v_old := ARRAY(
            SELECT m.ctid FROM outlast_minutes m
            WHERE m.level = v_step.level AND m.at < v_now - v_step.age
            ORDER BY m.at LIMIT p_limit FOR UPDATE SKIP LOCKED);
        v_count := v_count + cardinality(v_old);
        CONTINUE WHEN cardinality(v_old) = 0;
        WITH gone AS (
            DELETE FROM outlast_minutes m WHERE m.ctid = ANY (v_old) RETURNING m.*
        ), cut AS (
            SELECT g.*, t.level AS upper, t.width, CASE WHEN t.width > 0 THEN g.at - g.at % t.width ELSE 0 END AS part
            FROM gone g CROSS JOIN unnest(v_step.levels, v_step.widths) AS t (level, width)
        )
        INSERT INTO outlast_minutes AS m
        SELECT g.upper, 0, g.part, CASE WHEN g.width > 0 THEN g.part ELSE max(g.at) END,
               g.kind, g.queue, g.task, g.outcome,
               least(100000000000000, sum(g.jobs)), least(100000000000000, sum(g.firsts)),
               least(100000000000000, sum(g.seconds)), least(100000000000000, sum(g.waited)),
               least(100000000000000, sum(g.d1)), least(100000000000000, sum(g.d2)),
               least(100000000000000, sum(g.d3)), least(100000000000000, sum(g.d4)),
               least(100000000000000, sum(g.d5)), least(100000000000000, sum(g.d6)),
               least(100000000000000, sum(g.d7)), least(100000000000000, sum(g.d8)),
               least(100000000000000, sum(g.d9)), least(100000000000000, sum(g.d10)),
               least(100000000000000, sum(g.d11)), least(100000000000000, sum(g.w1)),
               least(100000000000000, sum(g.w2)), least(100000000000000, sum(g.w3)),
               least(100000000000000, sum(g.w4)), least(100000000000000, sum(g.w5)),
               least(100000000000000, sum(g.w6)), least(100000000000000, sum(g.w7)),
               least(100000000000000, sum(g.w8)), least(100000000000000, sum(g.w9)),
               least(100000000000000, sum(g.w10)), least(100000000000000, sum(g.w11))
        FROM cut g
        GROUP BY g.upper, g.width, g.part, g.kind, g.queue, g.task, g.outcome
        ORDER BY g.upper, g.part, g.kind, g.queue, g.task, g.outcome
        ON CONFLICT (level, worker_id, batch, kind, queue, task, outcome) DO UPDATE SET
            at = greatest(m.at, excluded.at),
            jobs = least(100000000000000, m.jobs + excluded.jobs),
            firsts = least(100000000000000, m.firsts + excluded.firsts),
            seconds = least(100000000000000, m.seconds + excluded.seconds),
            waited = least(100000000000000, m.waited + excluded.waited),
            d1 = least(100000000000000, m.d1 + excluded.d1),
            d2 = least(100000000000000, m.d2 + excluded.d2),
            d3 = least(100000000000000, m.d3 + excluded.d3),
            d4 = least(100000000000000, m.d4 + excluded.d4),
            d5 = least(100000000000000, m.d5 + excluded.d5),
            d6 = least(100000000000000, m.d6 + excluded.d6),
            d7 = least(100000000000000, m.d7 + excluded.d7),
            d8 = least(100000000000000, m.d8 + excluded.d8),
            d9 = least(100000000000000, m.d9 + excluded.d9),
            d10 = least(100000000000000, m.d10 + excluded.d10),
            d11 = least(100000000000000, m.d11 + excluded.d11),
            w1 = least(100000000000000, m.w1 + excluded.w1),
            w2 = least(100000000000000, m.w2 + excluded.w2),
            w3 = least(100000000000000, m.w3 + excluded.w3),
            w4 = least(100000000000000, m.w4 + excluded.w4),
            w5 = least(100000000000000, m.w5 + excluded.w5),
            w6 = least(100000000000000, m.w6 + excluded.w6),
            w7 = least(100000000000000, m.w7 + excluded.w7),
            w8 = least(100000000000000, m.w8 + excluded.w8),
            w9 = least(100000000000000, m.w9 + excluded.w9),
            w10 = least(100000000000000, m.w10 + excluded.w10),
            w11 = least(100000000000000, m.w11 + excluded.w11);
    END LOOP;

    v_old := ARRAY(
        SELECT m.ctid FROM outlast_minutes m
        WHERE m.level IN ('hour', 'total') AND m.at < v_now - p_hour_seconds
        LIMIT p_limit FOR UPDATE SKIP LOCKED);
    DELETE FROM outlast_minutes m WHERE m.ctid = ANY (v_old);
    RETURN v_count + cardinality(v_old);
END
$$;
