-- Ids, positions and tokens. A number drawn in a transaction that rolls back is drawn again by
-- the next one: no other transaction has seen it. Once committed it never comes back; nothing lowers a value.

-- name: draw
UPDATE outlast_sequences SET value = value + ? WHERE name = ? RETURNING value + 0
-- name: draw_places
-- Ids and positions at once; the id is the row with 1.
UPDATE outlast_sequences SET value = value + ? WHERE name IN ('job', 'position')
RETURNING name = 'job', value + 0
-- name: draw_tokens
-- Above the time of day in microseconds, too, which no store draws as fast as: so all that was drawn in another
-- file, of which this one is an older copy, was smaller.
UPDATE outlast_sequences SET value = max(value, CAST(:now * 1000000 AS INTEGER)) + :count WHERE name = 'token'
RETURNING value + 0
-- name: raise
-- A worker has seen this token, or a later one is drawn. Where it was not drawn from this file, others may know
-- tokens that were drawn after it: above the time of day, too, or beyond by a step of up to 71 minutes, by
-- chance, where the clock was set back.
UPDATE outlast_sequences
SET value = CASE WHEN CAST(:now * 1000000 AS INTEGER) > :above THEN CAST(:now * 1000000 AS INTEGER)
                 ELSE :above + 1000000 + (random() & 4294967295) END
WHERE name = 'token' AND value < :above
