-- Answer writes that were not accepted, from a fresh snapshot:
--   * `busy` while the row is still this attempt's (another session held its lock a moment ago);
--   * `already` only if exactly this end is stored, or if this checks a completion in the task's own transaction and
--     the job is gone: that commit deletes a job that is kept for no time (keep = 0), and nothing is left to do;
--   * `refused` otherwise, which is recorded under p_verb (NULL: not recorded). The newest p_kept records are kept.
CREATE FUNCTION outlast_judge_v1(
    p_ids bigint[], p_tokens bigint[], p_outcomes text[], p_verb text, p_kept integer)
RETURNS TABLE (job_id bigint, token bigint, answer text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_last bigint;
BEGIN
    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT h.job_id, h.token, coalesce(a.ended_at, j.ended_at) AS ended_at,
               CASE WHEN j.state = 'running' THEN 'busy'
                    WHEN j.state = 'completed'
                         AND h.outcome IN ('completed', 'completion_not_committed') THEN 'already'
                    WHEN a.outcome = h.outcome THEN 'already'
                    WHEN h.outcome = 'completion_not_committed' AND NOT EXISTS (
                        SELECT FROM outlast_jobs k WHERE k.id = h.job_id) THEN 'already'
                    ELSE 'refused' END AS answer
        FROM unnest(p_ids, p_tokens, p_outcomes) AS h (job_id, token, outcome)
        LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token
        LEFT JOIN outlast_attempts a ON a.token = ANY (ARRAY[h.token]) AND a.job_id = ANY (ARRAY[h.job_id])
    ), noted AS (
        INSERT INTO outlast_refusals (job_id, token, verb, at, late_by)
        SELECT g.job_id, g.token, p_verb, v_now, v_now - g.ended_at
        FROM judged g
        WHERE g.answer = 'refused' AND p_verb IS NOT NULL
    )
    SELECT g.job_id, g.token, g.answer FROM judged g;

    SELECT max(id) INTO v_last FROM outlast_refusals;
    DELETE FROM outlast_refusals WHERE id IN (
        SELECT id FROM outlast_refusals WHERE id <= v_last - p_kept
        ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$$;
