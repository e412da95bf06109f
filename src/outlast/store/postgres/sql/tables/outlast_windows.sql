-- The job of a key and a task in the present window (once_per): one row for each key and task, which counts until its
-- window is over, and is then overwritten or pruned. job_id 0: an enqueue that took the row has stored no job. Of two
-- enqueues at once, the second waits for this row (outlast_take_window_v1).
CREATE TABLE outlast_windows (
    key    text COLLATE "C" NOT NULL,
    task   text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    until  double precision NOT NULL,
    PRIMARY KEY (key, task)
);
CREATE INDEX outlast_windows_until ON outlast_windows (until);
