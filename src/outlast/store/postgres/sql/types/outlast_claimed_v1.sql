-- A row of an exchange's reply: a claimed job, or (all else NULL) a head in JSON.
CREATE TYPE outlast_claimed_v1 AS (
    head text, job_id bigint, token bigint, task text, queue text, args text, number integer,
    failures integer, losses integer, policy text, tenant text, checkpoint text, priority smallint,
    solo smallint, incident bigint, waited double precision, expires_in double precision, awaited boolean
);
