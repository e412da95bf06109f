-- Whether the session that answers is the one that listens on these channels: of the first no other has the name, and the
-- second is the store's (channel.sql), which other tables would change. Touches no row, and wakes no other session.
SELECT $2::text = pg_catalog.concat('outlast_', 'outlast_schema'::pg_catalog.regclass::pg_catalog.oid) AND count(*) = 2
FROM pg_listening_channels() AS c (name) WHERE c.name IN ($1, $2)
