-- Find the lanes with jobs for a request, and lock the jobs that it takes next, in the order of the line (called by
-- outlast_exchange_v1, which starts them). p_request: the place of the request in p_req. p_bytes_max: how many bytes the jobs may have together;
-- with p_is_first, the first job is taken regardless of its size. p_unknown: lanes that the caller does not know may
-- have jobs.
--
-- Lanes: the line is read lane by lane (task, queue, priority), and only in lanes of the request's tasks, so that
-- jobs of unknown tasks slow no claim. Queues take turns: a claim starts behind the queue from which the last
-- claim for the same tasks took a job (firsts, one for each request), so that a long queue starves no other. A
-- claim reads no more queues than it has places (outlast_find_lanes_v1); no step walks over all queues. It looks
-- for as many lanes as the caller expects to need (mosts), then for four times as many, until its places are
-- filled.
--
-- Floors: the caller passes the lanes that it knows, each with a floor, the position below which it has found
-- nothing for a while. Rows that have left the line stay in the index until vacuum removes them, which it cannot
-- do while an older transaction is open. A scan from the head of a lane walks over all of them; a scan from the
-- floor does not. Floors are only hints. A job below its floor (its transaction stayed open while later jobs were
-- claimed) is found by a look below the floors. The caller asks for such a look once a second, as a range of
-- positions (look_from, look_to): the scan meets no more dead entries than the range has positions, so its
-- cost is bounded. A floor that is too high delays a job and never loses it, since whether a job can be claimed
-- depends on its row alone. late: how many jobs such a look has found.
--
-- Unknown lanes (fresh): one probe of each gap between known lanes finds new lanes at once, because a gap holds no index
-- entry, live or dead, except of lanes that the caller does not know. Where the probes walk over too many dead
-- entries (walked), the caller has the gaps searched less often (searches), and in between only in the queues
-- that wake-ups have named (news).
CREATE FUNCTION outlast_claim_line_v1(
    p_req outlast_claim_request_v1, p_request integer, p_limit integer, p_bytes_max bigint, p_is_first boolean,
    p_unknown boolean,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT shown bigint[], OUT bytes bigint,
    OUT started timestamptz, OUT cut boolean, OUT late integer, OUT walked bigint, OUT fresh json)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_line oid := 'outlast_jobs_lane'::regclass;
    v_tasks text[] := p_req.tasks[p_request]::text[];
    v_everywhere boolean := p_req.searches[p_request] = 1;
    v_only text[] := CASE WHEN v_everywhere OR p_req.queues <> '{}' THEN p_req.queues ELSE p_req.news END;
    v_searches boolean := CASE WHEN v_everywhere THEN p_unknown ELSE v_only <> '{}' END;
    v_first text := p_req.firsts[p_request]; v_before text;
    v_most integer := least(p_req.mosts[p_request], p_limit + 1);
    v_read bigint; v_left integer := p_limit; v_lanes record; v_jobs record; v_count integer;
BEGIN
    bytes := 0;
    cut := false;
    walked := 0;
    IF p_req.look_to IS NOT NULL THEN
        v_lanes := outlast_find_lanes_v1(
            p_req, v_tasks, p_req.queues, NOT v_everywhere AND p_req.queues = '{}', false, v_first, NULL, v_most);
        v_jobs := outlast_lock_lanes_v1(
            p_req, p_request, v_lanes.queues, v_lanes.tasks, v_lanes.ranks, v_lanes.floors, v_lanes.mixed,
            p_req.look_from, p_req.look_to, v_left, 9223372036854775807, true);
        ids := v_jobs.ids;
        rows := v_jobs.rows;
        positions := v_jobs.positions;
        bytes := coalesce(v_jobs.bytes, 0);
        late := coalesce(cardinality(ids), 0);
        v_left := v_left - late;
    END IF;
    WHILE v_left > 0 LOOP
        v_read := pg_stat_get_xact_tuples_returned(v_line);
        v_lanes := outlast_find_lanes_v1(
            p_req, v_tasks, v_only, NOT v_everywhere AND p_req.queues = '{}', v_searches, v_first, v_before, v_most);
        walked := walked + pg_stat_get_xact_tuples_returned(v_line) - v_read;
        v_jobs := outlast_lock_lanes_v1(
            p_req, p_request, v_lanes.queues, v_lanes.tasks, v_lanes.ranks, v_lanes.floors, v_lanes.mixed,
            NULL, NULL, v_left, 9223372036854775807, true);
        ids := ids || v_jobs.ids;
        rows := rows || v_jobs.rows;
        positions := positions || v_jobs.positions;
        bytes := bytes + coalesce(v_jobs.bytes, 0);
        v_left := v_left - coalesce(cardinality(v_jobs.ids), 0);
        v_most := least(4 * v_most, 1000000);
        fresh := coalesce(fresh, v_lanes.fresh);
        v_first := v_lanes.reached;
        IF v_first IS NULL THEN
            -- go on with the queues before the one with which the search began
            EXIT WHEN v_before IS NOT NULL OR p_req.firsts[p_request] = '' OR NOT v_searches OR v_only <> '{}';
            v_first := '';
            v_before := p_req.firsts[p_request];
        END IF;
    END LOOP;
    IF bytes > p_bytes_max THEN
        v_count := outlast_fit_v1(rows, p_bytes_max, p_is_first);
        cut := coalesce(v_count < cardinality(ids), false);
        ids := ids[:v_count];
        rows := rows[:v_count];
        positions := positions[:v_count];
    END IF;
    shown := positions;
    started := clock_timestamp();
END
$$;
