-- Counters of workers (store/minutes.py defines the columns). Rows of level worker hold what one worker has counted
-- in a minute; they are added up to minutes of all workers, and to totals. No job waits for these rows:
-- nothing reads or writes them in the exchange. at and batch are seconds since 1970 by the store's clock, except the
-- batch of a worker's row, which is the worker's own number: the same batch again adds nothing. d1 to d11 count
-- attempts by how long they ran, w1 to w11 by how long they had waited, within the bounds of
-- outlast/store/minutes.py. Numbers end at 10^14, so that no sum of them overflows.
CREATE TABLE outlast_minutes (
    level     text COLLATE "C" NOT NULL,
    worker_id bigint NOT NULL,
    batch     bigint NOT NULL,
    at        bigint NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    outcome   text COLLATE "C" NOT NULL,
    jobs      bigint NOT NULL,
    firsts    bigint NOT NULL,
    seconds   double precision NOT NULL,
    waited    double precision NOT NULL,
    d1 bigint NOT NULL, d2 bigint NOT NULL, d3 bigint NOT NULL, d4 bigint NOT NULL, d5 bigint NOT NULL,
    d6 bigint NOT NULL, d7 bigint NOT NULL, d8 bigint NOT NULL, d9 bigint NOT NULL,
    d10 bigint NOT NULL, d11 bigint NOT NULL,
    w1 bigint NOT NULL, w2 bigint NOT NULL, w3 bigint NOT NULL, w4 bigint NOT NULL, w5 bigint NOT NULL,
    w6 bigint NOT NULL, w7 bigint NOT NULL, w8 bigint NOT NULL, w9 bigint NOT NULL,
    w10 bigint NOT NULL, w11 bigint NOT NULL,
    PRIMARY KEY (level, worker_id, batch, kind, queue, task, outcome),
    CONSTRAINT outlast_minutes_level CHECK (level IN ('worker', 'minute', 'total')),
    CONSTRAINT outlast_minutes_ranges CHECK (
        at BETWEEN 0 AND 100000000000000
        AND seconds BETWEEN 0 AND 1e14 AND waited BETWEEN 0 AND 1e14
        AND least(jobs, firsts,
                 d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10,
                 w11) >= 0
        AND greatest(jobs, firsts,
                    d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5, w6, w7, w8, w9,
                    w10, w11) <= 100000000000000)
);
CREATE INDEX outlast_minutes_at ON outlast_minutes (level, at);
