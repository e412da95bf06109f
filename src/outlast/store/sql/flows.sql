-- Flows: statements that all stores share (statements.py). Reads only.

-- name: blocked
-- The newest blocked jobs before one, by which flows are found.
SELECT j.id FROM outlast_jobs j /*! INDEXED BY outlast_jobs_blocked */
WHERE j.state = 'blocked' AND j.id < :before ORDER BY j.id DESC LIMIT :most
