-- For the rest of this transaction: counts that stop at a bound go by the index whose order they
-- ask for, also where the statistics are of a table that looked different (a plan that sorted the
-- whole line to count the first of it was seen: seconds instead of a tenth of one).
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off
