-- The tasks that active workers announce, one JSON list per worker. Reads only.
SELECT tasks FROM outlast_workers WHERE status = 'active'
