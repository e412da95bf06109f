-- Which of these privileges on whole tables ($2, each with a privilege at the same place in $3) were granted
-- to a role ($1) itself: each as a REVOKE, which takes those on single columns with it. Reads the catalog only.
SELECT 'REVOKE ' || n.privilege || ' ON TABLE ' || c.oid::regclass || ' FROM ' || quote_ident(r.rolname) AS statement
FROM unnest($2::text[], $3::text[]) AS n (name, privilege)
JOIN pg_catalog.pg_roles r ON r.rolname = $1::name
JOIN pg_catalog.pg_class c ON c.oid = to_regclass(n.name)
WHERE EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee = r.oid AND a.privilege_type = n.privilege)
