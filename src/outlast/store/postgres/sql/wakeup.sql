-- Notifications to oneself.

-- name: channel
-- Return the name of this store's channel, as outlast_channel_v1 does for senders. A listener asks before it has
-- checked the tables, so this calls only functions of pg_catalog, which no other schema of the path can replace.
SELECT pg_catalog.concat('outlast_', 'outlast_schema'::pg_catalog.regclass::pg_catalog.oid)

-- name: echo
-- Notify this very session, to see whether notifications arrive at all: once for each connection, since it wakes each
-- session of the database that listens on any channel.
SELECT pg_notify($1, '')

-- name: listens
-- Check that the session that answers listens on these two channels. No other session has a channel of the first name;
-- the second is the store's (`channel`), which differs if other tables are found.
SELECT $2::text = pg_catalog.concat('outlast_', 'outlast_schema'::pg_catalog.regclass::pg_catalog.oid) AND count(*) = 2
FROM pg_listening_channels() AS c (name) WHERE c.name IN ($1, $2)
