-- Pauses, which change under the write lock. postgres/sql/pauses.sql argues when a pause is in force. A replaced row
-- has a new id, and keeps the time of the first pause.

-- name: pause
INSERT OR REPLACE INTO outlast_pauses (kind, name, paused_at, paused_by, reason, stop)
SELECT :kind, :name, coalesce(p.paused_at, :now), coalesce(:paused_by, p.paused_by),
       coalesce(:reason, p.reason), :stop
FROM (SELECT 1) LEFT JOIN outlast_pauses AS p ON p.kind = :kind AND p.name = :name
RETURNING id, kind, name, paused_at, paused_by, reason, stop
-- name: resume
DELETE FROM outlast_pauses WHERE kind = :kind AND name = :name
RETURNING id, kind, name, paused_at, paused_by, reason, stop
-- name: version
SELECT coalesce(group_concat(id), '') FROM (SELECT id FROM outlast_pauses ORDER BY id)
-- name: acknowledge_pauses
UPDATE outlast_workers SET acknowledged_pauses = :acknowledged_pauses WHERE id = :id AND registration IS :registration
-- name: free_kept
-- Keep no place of a permit for a stream whose jobs are paused.
UPDATE outlast_permits
SET kept_for = NULL, opens_at = nullif(opens_at, kept_until),
    freed = EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
WHERE kept_for IS NOT NULL AND EXISTS (
    SELECT 1 FROM outlast_streams AS s JOIN outlast_pauses AS p
    ON (p.kind, p.name) IN (VALUES ('queue', s.queue), ('task', s.task), ('tenant', s.tenant))
    WHERE s.id = outlast_permits.kept_for)
