-- Reads and writes of the table of migrations. Steps run inside BEGIN IMMEDIATE, where the list of applied steps is
-- read again: two programs that migrate at once do so one after the other, and the second finds nothing to do.

-- name: tables
SELECT coalesce(sum(name = 'outlast_schema'), 0), coalesce(sum(name = 'outlast_jobs'), 0)
FROM sqlite_master WHERE type = 'table' AND name IN ('outlast_schema', 'outlast_jobs')
-- name: applied
SELECT number, name, checksum, compatible_from, applied_at, store_id FROM outlast_schema ORDER BY number
-- name: note
INSERT INTO outlast_schema (number, name, checksum, compatible_from, applied_at, store_id)
VALUES (:number, :name, :checksum, :compatible_from, :now,
        CASE WHEN :number = 1 THEN lower(hex(randomblob(16))) END)
-- name: lock
UPDATE outlast_schema SET number = number WHERE 0
-- name: file
SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'
-- name: store_id
SELECT CAST(store_id AS BLOB) FROM outlast_schema WHERE number = 1
