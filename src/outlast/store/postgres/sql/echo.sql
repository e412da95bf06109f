-- Notify oneself, to see whether notifications arrive at all. Touches no row, but wakes each session of the database
-- that listens, on any channel: so it is sent once for each connection (listens.sql).
SELECT pg_notify($1, '')
