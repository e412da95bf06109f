-- Lock those of these jobs ($1) whose last token is the one that the caller has seen ($2, at the same place; 0: none
-- was drawn, NULL: any will do), in the order of their ids, as outlast_cancel_v1 and its like do. A claim passes over
-- locked rows, so until the commit none of them begins another attempt.
SELECT j.id FROM outlast_jobs j JOIN unnest($1::bigint[], $2::bigint[]) AS s (id, token) ON s.id = j.id
WHERE s.token IS NULL OR coalesce(j.token, 0) = s.token
ORDER BY j.id FOR NO KEY UPDATE OF j
