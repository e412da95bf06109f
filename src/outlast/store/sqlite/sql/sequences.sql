-- Ids, positions and tokens. A number drawn in a transaction that rolls back is drawn again by
-- the next one: no other transaction has seen it. Once committed it never comes back; nothing lowers a value.

-- name: draw
UPDATE outlast_sequences SET value = value + ? WHERE name = ? RETURNING value + 0
-- name: draw_places
-- Ids and positions at once; the id is the row with 1.
UPDATE outlast_sequences SET value = value + ? WHERE name IN ('job', 'position')
RETURNING name = 'job', value + 0
-- name: raise
UPDATE outlast_sequences SET value = :above WHERE name = 'token' AND value < :above
