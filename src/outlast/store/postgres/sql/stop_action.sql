-- Stop an action that is under way. Waits for a step of it that is under way; the next one finds it stopped.
UPDATE outlast_actions SET state = 'stopped', moved_at = clock_timestamp() WHERE id = $1 AND state = 'running'
RETURNING id
