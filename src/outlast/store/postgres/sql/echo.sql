-- Notify oneself, to see whether notifications arrive at all. Touches no row.
SELECT pg_notify($1, '')
