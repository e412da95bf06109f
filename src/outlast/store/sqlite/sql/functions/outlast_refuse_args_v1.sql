-- Refuse a JSON object that Python would not have encoded: INSERT INTO outlast_refuse_args_v1 (args). SQLite detects no
-- lone surrogates, but turns each into a byte ED followed by one of A0 to BF. Dots and brackets in a key of an object
-- count towards the depth, which is stricter than necessary.
CREATE VIEW outlast_refuse_args_v1 AS SELECT '{}' AS args WHERE 0;
CREATE TRIGGER outlast_refuse_args_v1_insert INSTEAD OF INSERT ON outlast_refuse_args_v1
BEGIN
    SELECT CASE
        WHEN length(CAST(NEW.args AS BLOB)) > 1048576
        THEN RAISE(ABORT, 'args have too many bytes of JSON: 1048576 are allowed')
        WHEN EXISTS (
            SELECT 1 FROM json_tree(NEW.args)
            WHERE type IN ('object', 'array')
                AND length(fullkey) - length(replace(replace(fullkey, '.', ''), '[', '')) >= 100)
        THEN RAISE(ABORT, 'lists and objects in args are more than 100 levels deep')
        WHEN EXISTS (SELECT 1 FROM json_tree(NEW.args) WHERE type = 'real' AND abs(atom) > 1.797e308)
        THEN RAISE(ABORT, 'args hold a number that is out of range')
        WHEN instr(lower(NEW.args), '\ud') AND EXISTS (
            SELECT 1 FROM json_tree(NEW.args), (VALUES
                    (x'EDA0'), (x'EDA1'), (x'EDA2'), (x'EDA3'), (x'EDA4'), (x'EDA5'), (x'EDA6'), (x'EDA7'),
                    (x'EDA8'), (x'EDA9'), (x'EDAA'), (x'EDAB'), (x'EDAC'), (x'EDAD'), (x'EDAE'), (x'EDAF'),
                    (x'EDB0'), (x'EDB1'), (x'EDB2'), (x'EDB3'), (x'EDB4'), (x'EDB5'), (x'EDB6'), (x'EDB7'),
                    (x'EDB8'), (x'EDB9'), (x'EDBA'), (x'EDBB'), (x'EDBC'), (x'EDBD'), (x'EDBE'), (x'EDBF')
                ) AS half
            WHERE instr(CAST(atom AS BLOB), half.column1) OR instr(CAST(key AS BLOB), half.column1))
        THEN RAISE(ABORT, 'args hold a lone surrogate')
    END;
END;
