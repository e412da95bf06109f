-- The job of a key and a task in the window that is under way (once_per): one row for each, which holds until its
-- window is over, and is then overwritten or pruned. job_id 0: an enqueue that took the row has stored no job. The row
-- is what two enqueues at once wait for: see outlast_take_window_v1.
CREATE TABLE outlast_windows (
    key    text COLLATE "C" NOT NULL,
    task   text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    until  double precision NOT NULL,
    PRIMARY KEY (key, task)
);
CREATE INDEX outlast_windows_until ON outlast_windows (until);
