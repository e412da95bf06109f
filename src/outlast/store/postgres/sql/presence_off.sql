-- Say that a worker's presence proves nothing. A worker that looks at the row from now on does not
-- judge by the lock; a reap that has looked before reads the row again when it has it locked.
UPDATE outlast_workers SET presence = NULL, presence_off = $2 WHERE id = $1
  AND registration IS NOT DISTINCT FROM $3
