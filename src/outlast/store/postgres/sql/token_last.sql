-- The highest token ever drawn. Not part of any snapshot: read after what is compared with it.
SELECT last_value FROM outlast_token_seq
