-- Judge the saves that are not in the seen lists, from a later snapshot (outlast_judge_v1).
CREATE FUNCTION outlast_unseen_v1(
    p_ids bigint[], p_tokens bigint[], p_seen_ids bigint[], p_seen_tokens bigint[],
    p_verb text, p_refusals_kept integer)
RETURNS TABLE (job_id bigint, token bigint, answer text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(p_ids) = cardinality(p_seen_ids) THEN RETURN; END IF;
    RETURN QUERY
    SELECT g.job_id, g.token, g.answer
    FROM (SELECT array_agg(h.job_id) AS ids, array_agg(h.token) AS tokens
          FROM unnest(p_ids, p_tokens) AS h (job_id, token)
          WHERE NOT EXISTS (SELECT FROM unnest(p_seen_ids, p_seen_tokens) AS s (job_id, token)
                            WHERE s.job_id = h.job_id AND s.token = h.token)) m
    CROSS JOIN LATERAL outlast_judge_v1(
        m.ids, m.tokens, array_fill(NULL::text, ARRAY[cardinality(m.ids)]), p_verb,
        p_refusals_kept) g;
END
$$;
