-- For the rest of this transaction a statement may take as long as it needs, but waits for a lock no
-- longer than a statement might take before.
SELECT set_config('lock_timeout', coalesce(nullif(current_setting('statement_timeout'), '0'), '30s'), true),
       set_config('statement_timeout', '0', true)
