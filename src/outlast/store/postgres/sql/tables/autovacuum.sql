-- Vacuum the tables that grow with the history more often than by default. PostgreSQL's own settings wait until a
-- fifth of a table is dead, or new, before they vacuum it, and a tenth for its statistics: ten and five million rows
-- of fifty. Here it is a twentieth: each vacuum reads all indexes, so a smaller share would cost more of each job
-- (docs/decisions/0094). Nothing depends on these settings: operators may set others. The remaining tables are small.
DO $$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY '{jobs,attempts,labels,logs,steps,minutes}'::text[] LOOP
        EXECUTE format('ALTER TABLE %I SET (
            autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05,
            autovacuum_vacuum_insert_threshold = 1000, autovacuum_vacuum_insert_scale_factor = 0.05,
            autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05)', 'outlast_' || v_table);
    END LOOP;
END
$$;
