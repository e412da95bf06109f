-- Take what is at hand, without the rest of an exchange: see migration_0003_exchange.sql, 9.
SELECT * FROM outlast_claim_v1(
    $1, $2, $3, $4::text::text[], $5::text::smallint[], $6::text::bigint[], $7)
