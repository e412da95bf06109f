-- Say on a worker's row by what it is woken. For people: it guards nothing.
UPDATE outlast_workers SET wakeup = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3
