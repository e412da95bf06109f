-- The lanes (task, queue, priority) that have jobs, or had some a while ago: claims read the line in these and no
-- others. Rows are appended and never changed, and no column is unique, so that no enqueue waits for another: several
-- rows may name one lane. outlast_add_lanes_v1 appends, outlast_thin_lanes_v1 deletes; both argue why no job is left in
-- a lane that is missing here. added_by: the transaction that has appended the row. Ids are random, so that no two sets
-- of rows have the same bit_xor of their ids, by which clients detect that the lanes have changed: for numbers that
-- count up, it could be equal. Roles that may only enqueue name lanes, so a priority out of range is refused: no claim
-- could read it.
CREATE TABLE outlast_lanes (
    id       bigint PRIMARY KEY DEFAULT (random() * 4611686018427387904)::bigint,
    task     text COLLATE "C" NOT NULL,
    queue    text COLLATE "C" NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN -100 AND 100),
    added_at double precision NOT NULL DEFAULT date_part('epoch', statement_timestamp()),
    added_by xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX outlast_lanes_lane ON outlast_lanes (task, queue, priority, added_at);
