-- Let schedules of the code sleep that no worker has declared for a while: they leave the index by which workers
-- look. A worker that declares one at this moment holds the row or has just renewed it, and the
-- condition is checked on that version.
UPDATE outlast_schedules s SET declared = false
WHERE s.name = ANY ($1::text[]) AND s.declared
  AND abs(s.declared_at - extract(epoch FROM statement_timestamp())) > $2::float8
RETURNING 1
