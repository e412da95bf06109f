-- Delete a schedule that no active worker's code declares. A firing under way holds the row: the delete waits
-- for its commit, and then deletes the newest version if that is not declared; a firing decided before finds
-- no next_tick. Jobs that were stored stay. Of the row stays how far ticks were accounted for, for one of the name
-- that is put again; prune_workers.sql removes it a week after declared_at, which here is when it was deleted.
WITH gone AS (
    UPDATE outlast_schedules s
    SET origin = 'deleted', declared = false, declared_at = t.now, next_tick = NULL, call = '', spec = '',
        version = '', versions = '', owed = ''
    FROM (SELECT extract(epoch FROM statement_timestamp())::float8 AS now) t
    WHERE s.name = $1 AND s.origin <> 'deleted'
      AND (s.declared_at IS NULL OR abs(s.declared_at - t.now) > $2::float8)
    RETURNING 1)
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN 'deleted'
            WHEN EXISTS (SELECT FROM outlast_schedules s WHERE s.name = $1 AND s.origin <> 'deleted') THEN 'declared'
            ELSE 'unknown' END
