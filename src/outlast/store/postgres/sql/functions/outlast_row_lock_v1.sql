-- Return the key of the lock under which the row of a stream or permit is made (outlast_make_permits_v1). Many rows share
-- a key, so that an exchange that makes thousands of rows holds few of the server's locks, of which there may be no more
-- than a few thousand for all sessions. Two exchanges that make rows of one key at the same time leave theirs to the
-- first, and to a later exchange. Depends on its argument alone.
CREATE FUNCTION outlast_row_lock_v1(p_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
    SELECT hashtextextended('outlast:row', p_id & 255)
$$;
