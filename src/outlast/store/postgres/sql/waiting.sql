-- What waits and is to be announced: a row of numbers, then jobs. Reads only; a job that is
-- claimed meanwhile is announced in vain.
SELECT * FROM outlast_waiting_v1($1::float8, $2::integer)
