-- What is kept of the lines of a job's attempts, in the order of their tokens. Reads only.
SELECT token, number, printed, lines FROM outlast_logs WHERE job_id = $1 ORDER BY job_id, token
