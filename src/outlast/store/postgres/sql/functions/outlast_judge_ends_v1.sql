-- Answer the ends of an exchange that were not accepted (outlast_judge_v1), given the tokens of those that were;
-- and how many of them are busy.
--
-- Runs inside outlast_exchange_v1, under its planner settings, and only where an end was not accepted.
CREATE FUNCTION outlast_judge_ends_v1(
    p_done_ids bigint[], p_done_tokens bigint[], p_ends text, p_accepted bigint[],
    p_refusals_kept integer, OUT answers json, OUT busy bigint)
LANGUAGE plpgsql
AS $$
BEGIN
    SELECT json_agg(json_build_array(g.job_id, g.token, g.answer)),
           count(*) FILTER (WHERE g.answer = 'busy')
    INTO answers, busy
    FROM (
        SELECT array_agg(h.job_id) AS ids, array_agg(h.token) AS tokens,
               array_agg(h.outcome) AS outcomes
        FROM (SELECT d.job_id, d.token, 'completed' AS outcome
              FROM unnest(p_done_ids, p_done_tokens) AS d (job_id, token)
              UNION ALL
              SELECT r.job_id, r.token, r.outcome
              FROM json_to_recordset(coalesce(p_ends, '[]')::json)
                   AS r (job_id bigint, token bigint, outcome text)) h
        WHERE h.token <> ALL (p_accepted)) m
    CROSS JOIN LATERAL outlast_judge_v1(
        m.ids, m.tokens, m.outcomes, 'end', p_refusals_kept) g;
END
$$;
