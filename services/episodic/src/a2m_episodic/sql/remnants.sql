-- name: named
WITH wanted AS MATERIALIZED (
    SELECT r.pk, r.id, r.slot FROM records r WHERE r.id = ANY(%(ids)s::text[])
)
SELECT id, 'records' AS place FROM wanted
UNION ALL
SELECT id, 'keys' FROM wanted WHERE slot IS NOT NULL
UNION ALL
SELECT r.id, 'words' FROM wanted r JOIN words w ON w.pk = r.pk
UNION ALL
SELECT r.id, 'lexical' FROM wanted r JOIN lexical l ON l.pk = r.pk
UNION ALL
SELECT r.id, 'vectors' FROM wanted r JOIN vectors v ON v.pk = r.pk
UNION ALL
SELECT alias, 'aliases'
FROM records r CROSS JOIN unnest(r.aliases) AS alias
WHERE r.aliases && %(ids)s::text[] AND r.aliases <> '{}' AND alias = ANY(%(ids)s::text[])

-- name: strays
-- Foreign keys forbid these; a restore, a repair or a hand in the database may have made them all the same.
SELECT 'words of no record' AS place
WHERE EXISTS (SELECT FROM words s WHERE NOT EXISTS (SELECT FROM records r WHERE r.pk = s.pk))
UNION ALL
SELECT 'lexical of no record'
WHERE EXISTS (SELECT FROM lexical s WHERE NOT EXISTS (SELECT FROM records r WHERE r.pk = s.pk))
UNION ALL
SELECT 'vectors of no record'
WHERE EXISTS (SELECT FROM vectors s WHERE NOT EXISTS (SELECT FROM records r WHERE r.pk = s.pk))
