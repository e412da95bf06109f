-- The writes refused within the last day, of the few that are kept, and the server's now.
SELECT count(*) FILTER (WHERE at > statement_timestamp() - interval '1 day') AS number,
       extract(epoch FROM statement_timestamp())::float8 AS now
FROM outlast_refusals
