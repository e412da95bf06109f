-- Name the channel of this store, as outlast_channel_v1 does for those that send. A listener asks before it has looked at the
-- tables, so this runs nothing that another schema of the path may have in its place.
SELECT pg_catalog.concat('outlast_', 'outlast_schema'::pg_catalog.regclass::pg_catalog.oid)
