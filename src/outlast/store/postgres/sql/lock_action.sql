-- Lock an action before its next step, or before more is counted. Two processes may take the same step at once: the
-- second waits here for the commit of the first, reads where it stands by then (READ COMMITTED checks the
-- row again), and changes nothing where that is not what it came for, or where it was stopped. So no
-- job is acted on by two steps, and a step whose process dies is taken again as a whole. The row of the
-- action is locked before those of jobs, always: two steps of one action never wait for each other.
SELECT counts, state, before_id FROM outlast_actions WHERE id = $1 FOR UPDATE
