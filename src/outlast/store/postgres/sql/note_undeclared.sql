-- Let schedules of the code sleep that no worker has declared for a while: they leave the index by which workers
-- look. A worker that declares one at this moment holds the row, which is passed over, or has just renewed
-- it: the condition is checked on that version. What a user's transaction holds waits for the next look.
UPDATE outlast_schedules s SET declared = false
FROM (SELECT d.name FROM outlast_schedules d
      WHERE d.name = ANY ($1::text[]) AND d.declared
        AND abs(d.declared_at - extract(epoch FROM statement_timestamp())) > $2::float8
      FOR NO KEY UPDATE SKIP LOCKED) l
WHERE s.name = l.name
RETURNING 1
