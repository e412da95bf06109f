"""What makes a PostgreSQL database refuse all that a store does without that is polling only."""

from __future__ import annotations

FUNCTIONS = (
    "pg_advisory_lock(bigint)",
    "pg_advisory_lock_shared(bigint)",
    "pg_advisory_xact_lock(bigint)",
    "pg_advisory_xact_lock_shared(bigint)",
    "pg_try_advisory_lock(bigint)",
    "pg_try_advisory_lock_shared(bigint)",
    "pg_try_advisory_xact_lock(bigint)",
    "pg_try_advisory_xact_lock_shared(bigint)",
    "pg_notify(text, text)",
)
# Functions are taken away from superusers as well: what calls one fails wherever it stands.
REFUSING = (
    "\n".join(
        f"ALTER FUNCTION pg_catalog.{each} RENAME TO refused_{each.partition('(')[0]};"
        for each in FUNCTIONS
    )
    + """
CREATE FUNCTION public.refuse_unlogged() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() c JOIN pg_class t ON t.oid = c.objid
               WHERE c.classid = 'pg_class'::regclass AND t.relpersistence = 'u') THEN
        RAISE 'unlogged tables are refused';
    END IF;
END
$$;
CREATE EVENT TRIGGER refuse_unlogged ON ddl_command_end EXECUTE FUNCTION public.refuse_unlogged();
"""
)
