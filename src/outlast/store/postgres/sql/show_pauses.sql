-- All that is paused, by id. Reads only; one snapshot.
SELECT id, kind, name, extract(epoch FROM paused_at)::float8 AS paused_at, paused_by, reason, stop
FROM outlast_pauses ORDER BY id
