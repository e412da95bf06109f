-- What is paused. Under the write lock, so that of two pauses or resumptions at once one comes first; an
-- exchange that came before sees nothing of it, and its worker starts nothing of what it brings once it has
-- acknowledged ("acknowledge_pauses"), which it does after it has given back what had not begun. A row that was
-- replaced has a new id, so that workers acknowledge it again; the time of the first pause stays.

-- name: pause
INSERT OR REPLACE INTO outlast_pauses (kind, name, paused_at, paused_by, reason, stop)
SELECT :kind, :name, coalesce(p.paused_at, :now), coalesce(:paused_by, p.paused_by),
       coalesce(:reason, p.reason), :stop
FROM (SELECT 1) LEFT JOIN outlast_pauses AS p ON p.kind = :kind AND p.name = :name
RETURNING id, kind, name, paused_at, paused_by, reason, stop
-- name: resume
DELETE FROM outlast_pauses WHERE kind = :kind AND name = :name
RETURNING id, kind, name, paused_at, paused_by, reason, stop
-- name: pauses
SELECT id, kind, name, paused_at, paused_by, reason, stop FROM outlast_pauses ORDER BY id
-- name: version
SELECT coalesce(group_concat(id), '') FROM (SELECT id FROM outlast_pauses ORDER BY id)
-- name: acknowledge_pauses
UPDATE outlast_workers SET acknowledged_pauses = :acknowledged_pauses WHERE id = :id AND registration IS :registration
