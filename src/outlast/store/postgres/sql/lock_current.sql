-- Lock those of these jobs ($1) whose last token is the one that the caller has seen ($2, at the same place; 0: none
-- was drawn, NULL: any will do), in the order of their ids, as outlast_cancel_v1 and its like do. A claim passes over
-- locked rows, so until the commit none of them begins another attempt. One by one, each by its key: a
-- join was seen to read the whole table where its statistics were old.
SELECT l.id FROM (SELECT u.id, u.token FROM unnest($1::bigint[], $2::bigint[]) AS u (id, token) ORDER BY u.id) s
CROSS JOIN LATERAL (
    SELECT j.id FROM outlast_jobs j
    WHERE j.id = s.id AND (s.token IS NULL OR coalesce(j.token, 0) = s.token) FOR NO KEY UPDATE) l
