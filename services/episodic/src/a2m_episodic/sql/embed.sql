-- name: lock_shared
SELECT pg_advisory_xact_lock_shared(%(number)s)

-- name: lock
SELECT pg_advisory_xact_lock(%(number)s)

-- name: hold
SELECT pg_advisory_lock_shared(%(number)s)

-- name: release
SELECT pg_advisory_unlock_shared(%(number)s)

-- name: named
SELECT r.pk, r.id, r.seq, r.owner, r.status, r.etag, v.pk IS NOT NULL AND v.model IS NULL AS callers
FROM records r LEFT JOIN vectors v ON v.pk = r.pk
WHERE r.id = ANY(%(ids)s::text[])
ORDER BY r.id
FOR UPDATE OF r

-- name: saw
UPDATE records r SET
    etag = gen_random_uuid(), features = %(features)s, embedding_model = %(model)s::text, unseen = false
WHERE r.pk = %(pk)s

-- name: callers
SELECT EXISTS (SELECT FROM vectors WHERE model IS NULL) AS held

-- name: patience
SELECT set_config('statement_timeout', '0', true)

-- name: drop_index
DROP INDEX IF EXISTS $name

-- name: clear_records
-- Blank as Python has it.
UPDATE records r SET
    etag = gen_random_uuid(), features = NULL, embedding_model = NULL,
    unseen = r.content ~ '[^\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
FROM vectors v WHERE v.pk = r.pk

-- name: clear_vectors
TRUNCATE vectors

-- name: change_dimensions
UPDATE store SET dimensions = %(dimensions)s
