-- Delete a schedule that no active worker's code declares. A firing under way holds the row: the delete waits
-- for its commit, and then deletes the newest version if that is not declared. Jobs that were stored stay.
WITH gone AS (
    DELETE FROM outlast_schedules s
    WHERE s.name = $1
      AND (s.declared_at IS NULL
           OR abs(s.declared_at - extract(epoch FROM statement_timestamp())) > $2::float8)
    RETURNING 1)
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN 'deleted'
            WHEN EXISTS (SELECT FROM outlast_schedules s WHERE s.name = $1) THEN 'declared'
            ELSE 'unknown' END
