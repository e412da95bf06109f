-- The queues and tasks that active workers announce, as JSON lists. Reads only.
SELECT DISTINCT queues, tasks FROM outlast_workers WHERE status = 'active'
