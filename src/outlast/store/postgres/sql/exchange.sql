-- Hand in what ended, take what can run next: see migration_0003_exchange.sql for why it is right.
SELECT * FROM outlast_exchange_v1(
    $1, $2, $3::text::bigint[], $4::text::bigint[], $5::text::text[], $6,
    $7::text::integer[], $8::text::integer[], $9::text::text[], $10::text::text[], $11::text::text[],
    $12::text::text[], $13::text::text[], $14::text::smallint[], $15::text::bigint[],
    $16, $17, $18, $19, $20, $21, $22, $23::text::text[]
)
