-- Hand in what ended, take what can run next: see migration_0003_exchange.sql for why it is right.
SELECT * FROM outlast_exchange_v1(
    $1, $2, $3::text::bigint[], $4::text::bigint[], $5::text::text[], $6, $7, $8, $9, $10, $11
)
