-- Say on a worker's row which of its duties fails, by what, and for how many seconds already; nulls: none
-- does. For people: it guards nothing, and races with nothing but the worker's own beats. A row that has
-- ended keeps what was said last.
UPDATE outlast_workers
SET failing = $2, failing_since = statement_timestamp() - $3::float8 * interval '1 second'
WHERE id = $1 AND registration IS NOT DISTINCT FROM $4 AND status IN ('active', 'draining')
