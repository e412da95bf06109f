-- Replace the tasks that a worker's row shows. For people and for `unservable`: it guards nothing.
UPDATE outlast_workers SET tasks = $2, lacks = $3 WHERE id = $1 AND registration IS NOT DISTINCT FROM $4
