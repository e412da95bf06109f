-- Notifications to oneself.

-- name: channel
-- Name the channel of this store, as outlast_channel_v1 does for those that send. A listener asks before it has looked at the
-- tables, so this runs nothing that another schema of the path may have in its place.
SELECT pg_catalog.concat('outlast_', 'outlast_schema'::pg_catalog.regclass::pg_catalog.oid)

-- name: echo
-- Notify oneself, to see whether notifications arrive at all. Touches no row, but wakes each session of the database
-- that listens, on any channel: so it is sent once for each connection (`listens`).
SELECT pg_notify($1, '')

-- name: listens
-- Whether the session that answers is the one that listens on these channels: of the first no other has the name, and the
-- second is the store's (`channel`), which other tables would change. Touches no row, and wakes no other session.
SELECT $2::text = pg_catalog.concat('outlast_', 'outlast_schema'::pg_catalog.regclass::pg_catalog.oid) AND count(*) = 2
FROM pg_listening_channels() AS c (name) WHERE c.name IN ($1, $2)
