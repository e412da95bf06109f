-- The highest token ever drawn; 0: none. Not part of any snapshot: read after what is compared with it.
SELECT coalesce(pg_sequence_last_value('outlast_token_seq'), 0)
