-- For the rest of this transaction a statement may take as long as it needs.
SET LOCAL statement_timeout = 0
