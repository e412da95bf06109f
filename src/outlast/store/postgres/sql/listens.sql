-- Whether the session that answers is the one that listens on this channel, of which no other has the name. Touches no row,
-- and wakes no other session.
SELECT EXISTS (SELECT FROM pg_listening_channels() AS c (name) WHERE c.name = $1)
