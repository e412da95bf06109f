-- What a worker asks a claim for. It makes one request for each kind of jobs that it has places for: the n-th elements
-- of limits, solos, tasks and firsts belong to one request. The tasks of a request are the text of an
-- array, since these differ in length.
CREATE TYPE outlast_claim_request_v1 AS (
    limits integer[],        -- how many jobs each request may bring
    solos integer[],         -- 0: jobs of the line and of streams; above: suspects that run alone so
    tasks text[],            -- the tasks of each request
    queues text[],           -- the queues that it serves; empty: all
    lane_queues text[],      -- the lanes in the order of the index: queue, task, negative priority, and the position
    lane_tasks text[],       -- from which to read
    lane_ranks smallint[],
    lane_floors bigint[],
    look_from bigint,        -- positions below the floors to look at as well; NULL: none
    look_to bigint,
    notify boolean,          -- whether jobs that can run now are announced
    claims_max integer,      -- jobs in the whole reply
    bytes_max bigint,        -- bytes of arguments and checkpoints in the whole reply
    firsts text[],           -- the queue behind which each request begins
    wakes bigint[],          -- positions of the wake-ups that the caller has heard; NULL: it reports none
    kind text,               -- which workers hear that nothing is left for them; NULL: none
    not_queues text[],       -- queues and tenants that are paused
    not_tenants text[],
    streams_from text,       -- the queue behind which the look at streams begins
    lanes_seen bigint,       -- the bit_xor of the ids in outlast_lanes from which the caller has these lanes
    mixed boolean            -- whether two of these lanes have one queue and one rank
);
