-- Fill a store up to 20,000 records by copies of its first 1,000, which the service wrote itself.
CREATE TEMP TABLE copies AS
SELECT nextval('pks') AS pk, n, b.pk AS base, b.seq + n * 1000 AS seq, k.id AS bucket
FROM generate_series(1000, 19999) n
JOIN records b ON b.id = 'r' || CASE n % 1000 WHEN 0 THEN 500 ELSE n % 1000 END
JOIN buckets k ON k.session = 's' || n % 400 AND k.owner = 'o' || n % 20
WHERE n % 4000 <> 0;

INSERT INTO records (
    pk, seq, bucket, salience, revision, moves, access_count, etag, id, created_at, status, owner, session, role,
    aliases, metadata, facts, content
)
SELECT
    c.pk, c.seq, c.bucket, 1, 0, 0, 0, gen_random_uuid(), 'r' || c.n, b.created_at, 'active', 'o' || c.n % 20,
    's' || c.n % 400, b.role, '{}', f.facts::text, f.facts, b.content
FROM copies c
JOIN records b ON b.pk = c.base
CROSS JOIN LATERAL (
    SELECT jsonb_build_object(
        'n', c.n, 'one', c.n = 4321, 'ten', c.n % 2000 = 7, 'thousand', c.n % 20 = 3, 'half', c.n % 2
    ) AS facts
) f;

INSERT INTO lexical (pk, seq, length, baked, active, owner, weights)
SELECT c.pk, c.seq, l.length, l.baked, true, 'o' || c.n % 20, l.weights
FROM copies c JOIN lexical l ON l.pk = c.base;

INSERT INTO words (pk, marks) SELECT c.pk, w.marks FROM copies c JOIN words w ON w.pk = c.base;

INSERT INTO vectors (pk, seq, active, owner, vec)
SELECT c.pk, c.seq, true, 'o' || c.n % 20, v.vec
FROM copies c
CROSS JOIN LATERAL (
    -- The sum of three is near enough to a normal distribution; `c.pk` makes it another vector for each row.
    SELECT array_agg(x)::vector AS vec
    FROM (SELECT random() + random() + random() - 1.5 + c.pk * 0 AS x FROM generate_series(1, 24)) xs
) v;

UPDATE buckets b SET records = n.records
FROM (SELECT bucket, count(*) AS records FROM records GROUP BY bucket) n
WHERE b.id = n.bucket;
