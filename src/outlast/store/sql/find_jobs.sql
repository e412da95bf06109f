-- Ids of jobs for a list: statements that all stores share (statements.py). Reads only.

-- name: dead_floor
-- The id of the last of :rows dead jobs.
SELECT id FROM outlast_jobs /*! INDEXED BY outlast_jobs_dead */
WHERE state = 'dead' AND id <= :last ORDER BY id DESC LIMIT 1 OFFSET :rows::integer - 1
-- name: all_floor
-- The id of the last of :rows jobs.
SELECT id FROM outlast_jobs WHERE id <= :last ORDER BY id DESC LIMIT 1 OFFSET :rows::integer - 1
-- name: label_floor
-- The id of the last of :rows jobs of the label.
SELECT job_id AS id FROM outlast_labels /*! INDEXED BY outlast_labels_name */ WHERE label = :label AND job_id <= :last
ORDER BY label DESC, job_id DESC LIMIT 1 OFFSET :rows::integer - 1
-- name: dead
-- Dead jobs, down to :floor, by their own index; with :fingerprint alone, the index answers without reading rows.
SELECT id FROM outlast_jobs /*! INDEXED BY outlast_jobs_dead */
WHERE state = 'dead' AND id <= :last AND id >= :floor::bigint
  AND {chosen} AND (:fingerprint::text IS NULL OR fingerprint = :fingerprint)
ORDER BY id DESC LIMIT :limit
