-- Say where an action stands, in the transaction that has locked it (lock_action.sql).
UPDATE outlast_actions SET counts = $2, state = $3, before_id = $4, moved_at = clock_timestamp() WHERE id = $1
