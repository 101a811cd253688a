-- name: lock_shared
SELECT pg_advisory_xact_lock_shared(%(number)s)

-- name: lock
SELECT pg_advisory_xact_lock(n) FROM unnest(%(numbers)s::bigint[]) AS n

-- name: met
-- Rows are always locked in the order of their ids.
SELECT $columns
FROM records r
WHERE r.id = ANY(%(ids)s::text[])
    OR r.slot = ANY(%(slots)s::uuid[])
    OR r.aliases && %(ids)s::text[] AND r.aliases <> '{}'
ORDER BY r.id
FOR UPDATE

-- name: named
SELECT $columns FROM records r WHERE r.id = ANY(%(ids)s::text[]) ORDER BY r.id FOR UPDATE

-- name: graves
SELECT id, reason, seq, owner, key, session, target, moves FROM tombstones WHERE id = ANY(%(ids)s::text[])

-- name: dimensions
SELECT dimensions FROM store

-- name: fix_dimensions
UPDATE store SET dimensions = %(dimensions)s WHERE dimensions IS NULL RETURNING dimensions

-- name: enter_buckets
INSERT INTO buckets (name, owner, session)
SELECT n.name, n.owner, n.session
FROM unnest(%(names)s::uuid[], %(owners)s::text[], %(sessions)s::text[]) AS n(name, owner, session)
ORDER BY n.name
ON CONFLICT (name) DO UPDATE SET last = buckets.last
RETURNING id, owner, session, last, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now

-- name: settle_buckets
UPDATE buckets b
SET last = greatest(b.last, n.last), records = b.records + n.change, elsewhere = b.elsewhere OR n.elsewhere
FROM unnest(%(ids)s::bigint[], %(lasts)s::bigint[], %(changes)s::bigint[], %(elsewhere)s::boolean[])
    AS n(id, last, change, elsewhere)
WHERE b.id = n.id

-- name: numbers
SELECT nextval('pks') AS pk FROM generate_series(1, %(count)s)

-- name: put_record
INSERT INTO records ($columns) VALUES ($values)
ON CONFLICT (pk) DO UPDATE SET $assignments

-- name: put_lexical
INSERT INTO lexical (pk, seq, length, baked, active, owner, weights)
VALUES (%(pk)s, %(seq)s, %(length)s, %(baked)s, %(active)s, %(owner)s, %(weights)s::sparsevec)
ON CONFLICT (pk) DO UPDATE SET
    length = excluded.length, baked = excluded.baked, active = excluded.active, weights = excluded.weights

-- name: put_words
INSERT INTO words (pk, marks) VALUES (%(pk)s, %(marks)s::bigint[])
ON CONFLICT (pk) DO UPDATE SET marks = excluded.marks

-- name: put_vector
INSERT INTO vectors (pk, seq, active, owner, model, vec)
VALUES (%(pk)s, %(seq)s, %(active)s, %(owner)s, %(model)s, %(vec)s)
ON CONFLICT (pk) DO UPDATE SET active = excluded.active, model = excluded.model, vec = excluded.vec

-- name: drop_vectors
DELETE FROM vectors WHERE pk = ANY(%(pks)s::bigint[])

-- name: renew
UPDATE records r SET etag = n.etag
FROM unnest(%(pks)s::bigint[], %(etags)s::uuid[]) AS n(pk, etag)
WHERE r.pk = n.pk

-- name: remove
DELETE FROM records WHERE pk = ANY(%(pks)s::bigint[])

-- name: unbury
DELETE FROM tombstones WHERE id = ANY(%(ids)s::text[])

-- name: bury
INSERT INTO tombstones (id, reason, seq, owner, key, session, target, moves)
VALUES (%(id)s, %(reason)s, %(seq)s, %(owner)s, %(key)s, %(session)s, %(target)s, %(moves)s)
ON CONFLICT (id) DO UPDATE SET
    reason = excluded.reason, seq = excluded.seq, owner = excluded.owner, key = excluded.key,
    session = excluded.session, target = excluded.target, moves = excluded.moves,
    buried_at = excluded.buried_at

-- name: selected
SELECT r.pk, r.id, r.seq FROM records r WHERE $filter ORDER BY r.seq, r.id

-- name: still_selected
SELECT $columns FROM records r WHERE r.pk = ANY(%(pks)s::bigint[]) AND ($filter) ORDER BY r.id FOR UPDATE

-- name: settle
WITH found AS MATERIALIZED (
    SELECT r.pk
    FROM records r JOIN unnest(%(ids)s::text[], %(etags)s::text[]) AS n(id, etag) ON r.id = n.id
    WHERE replace(r.etag::text, '-', '') = n.etag
    ORDER BY r.id
    FOR UPDATE OF r
)
UPDATE records r SET arrival = NULL FROM found WHERE r.pk = found.pk

-- name: judge
WITH found AS MATERIALIZED (
    SELECT r.pk, r.id, n.status, n.approved
    FROM records r
    JOIN unnest(%(ids)s::text[], %(etags)s::text[], %(statuses)s::text[], %(approvals)s::text[])
        AS n(id, etag, status, approved) ON r.id = n.id
    WHERE replace(r.etag::text, '-', '') = n.etag
    ORDER BY r.id
    FOR UPDATE OF r
), searched AS (
    UPDATE lexical l SET active = found.status = 'active' FROM found WHERE l.pk = found.pk
), compared AS (
    UPDATE vectors v SET active = found.status = 'active' FROM found WHERE v.pk = found.pk
)
UPDATE records r SET
    status = found.status,
    etag = gen_random_uuid(),
    provenance = CASE WHEN found.approved IS NULL THEN r.provenance ELSE
        (coalesce(r.provenance, '{}')::jsonb || jsonb_build_object('approved', found.approved))::text END,
    facts = CASE WHEN found.approved IS NULL THEN r.facts ELSE
        r.facts || jsonb_build_object('provenance.approved', found.approved) END
FROM found WHERE r.pk = found.pk
RETURNING r.id

-- name: reinforce
WITH found AS MATERIALIZED (
    SELECT r.pk FROM records r WHERE $filter ORDER BY r.id FOR UPDATE
)
UPDATE records r SET salience = r.salience + %(amount)s, etag = gen_random_uuid()
FROM found WHERE r.pk = found.pk
RETURNING r.pk

-- name: touch
WITH found AS MATERIALIZED (
    SELECT r.pk, n.times
    FROM records r JOIN unnest(%(ids)s::text[], %(times)s::bigint[]) AS n(id, times) ON r.id = n.id
    ORDER BY r.id
    FOR UPDATE OF r
)
UPDATE records r
SET access_count = r.access_count + found.times, accessed_at = %(at)s, etag = gen_random_uuid()
FROM found WHERE r.pk = found.pk
