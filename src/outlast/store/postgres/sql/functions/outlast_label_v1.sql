-- Store the labels of new jobs: a JSON array for each. This runs as its owner (outlast_check_new_v1).
CREATE FUNCTION outlast_label_v1(p_jobs bigint[], p_labels text[]) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM outlast_check_new_v1(p_jobs);
    INSERT INTO outlast_labels (job_id, label)
    SELECT h.job_id, l.label FROM unnest(p_jobs, p_labels) AS h (job_id, labels)
    CROSS JOIN LATERAL json_array_elements_text(h.labels::json) AS l (label)
    ON CONFLICT (job_id, label) DO NOTHING;
END
$$;
