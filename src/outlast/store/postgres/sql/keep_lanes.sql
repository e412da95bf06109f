-- Say on a worker's row from where it reads the line, for clients that come later (learn_lanes.sql).
-- A hint, as all floors are: it guards nothing.
UPDATE outlast_workers SET lanes = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3
