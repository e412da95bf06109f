-- Send an event from other languages: INSERT INTO outlast_send_event_v1 (name, value) keeps this value under its name,
-- unless a value is kept already, as on PostgreSQL (docs/other-languages.md). The writer's transaction holds the write
-- lock, so it is seen together with its notice (dependencies.sql).
CREATE VIEW outlast_send_event_v1 AS SELECT '' AS name, 'null' AS value WHERE 0;
CREATE TRIGGER outlast_send_event_v1_insert INSTEAD OF INSERT ON outlast_send_event_v1
BEGIN
    SELECT CASE
        WHEN typeof(NEW.name) <> 'text' OR length(NEW.name) NOT BETWEEN 1 AND 190 OR instr(CAST(NEW.name AS BLOB), x'00')
            OR NEW.name GLOB '*[' || char(1) || '-' || char(31, 127) || '-' || char(160, 8232, 8233) || ']*'
        THEN RAISE(ABORT, 'the name of an event is a printable text of 1 to 190 characters')
        WHEN typeof(coalesce(NEW.value, 'null')) <> 'text' OR instr(CAST(NEW.value AS BLOB), x'00')
            OR NOT json_valid(coalesce(NEW.value, 'null'))
        THEN RAISE(ABORT, 'the value of an event must be JSON')
    END;
    INSERT INTO outlast_refuse_args_v1 (args) VALUES ('{"value":' || coalesce(NEW.value, 'null') || '}');
    INSERT INTO outlast_upstream_notices (job_id, event)
    SELECT 0, NEW.name WHERE NOT EXISTS (SELECT 1 FROM outlast_events AS e WHERE e.name = NEW.name);
    INSERT INTO outlast_events (name, value, at)
    VALUES (NEW.name, '[' || coalesce(NEW.value, 'null') || ']', (julianday('now') - 2440587.5) * 86400.0)
    ON CONFLICT DO NOTHING;
END;
