-- name: timeline
SELECT $columns, v.vec
FROM (
    SELECT r.* FROM records r WHERE $filter ORDER BY r.seq DESC, r.id DESC LIMIT %(limit)s
) r
LEFT JOIN vectors v ON v.pk = r.pk AND %(vectors)s
ORDER BY r.seq, r.id

-- name: timeline_of_buckets
-- One walk along the index a bucket, so that a session costs what it returns and not what it holds.
SELECT $columns, v.vec
FROM (
    SELECT r.*
    FROM ($buckets) b
    CROSS JOIN LATERAL (
        SELECT r.* FROM records r
        WHERE r.bucket = b.id AND $filter
        ORDER BY r.seq DESC, r.id DESC LIMIT %(limit)s
    ) r
    ORDER BY r.seq DESC, r.id DESC LIMIT %(limit)s
) r
LEFT JOIN vectors v ON v.pk = r.pk AND %(vectors)s
ORDER BY r.seq, r.id

-- name: entries
SELECT $columns FROM records r
WHERE r.seq >= %(seq)s AND (r.seq, r.id) > (%(seq)s, %(id)s) AND $filter
ORDER BY r.seq, r.id LIMIT %(limit)s

-- name: entries_of_buckets
SELECT $columns
FROM ($buckets) b
CROSS JOIN LATERAL (
    SELECT r.* FROM records r
    WHERE r.bucket = b.id AND r.seq >= %(seq)s AND (r.seq, r.id) > (%(seq)s, %(id)s) AND $filter
    ORDER BY r.seq, r.id LIMIT %(limit)s
) r
ORDER BY r.seq, r.id LIMIT %(limit)s

-- name: elsewhere
SELECT 1 AS one FROM buckets b WHERE b.elsewhere AND b.id IN ($buckets) LIMIT 1

-- name: fetch
SELECT $columns, v.vec
FROM records r LEFT JOIN vectors v ON v.pk = r.pk AND %(vectors)s
WHERE r.key = %(key)s AND r.status = 'active' AND $filter
ORDER BY r.owner IS DISTINCT FROM %(owner)s::text, r.owner IS NOT NULL, r.seq, r.id
LIMIT 1

-- name: read
SELECT $columns, v.vec
FROM records r LEFT JOIN vectors v ON v.pk = r.pk
WHERE r.id = ANY(%(ids)s::text[])

-- name: forgotten
SELECT id, reason, seq, owner, key, session, target, moves FROM tombstones
WHERE reason = 'forgotten' AND seq >= %(seq)s AND (seq, id) > (%(seq)s, %(id)s)
    AND seq >= (extract(epoch FROM clock_timestamp()) - %(seconds)s) * 1000000
ORDER BY seq, id LIMIT %(limit)s

-- name: found
SELECT $columns, v.vec
FROM records r LEFT JOIN vectors v ON v.pk = r.pk AND %(vectors)s
WHERE r.pk = ANY(%(pks)s::bigint[])

-- name: count
SELECT coalesce(sum(b.records), 0)::bigint AS records FROM buckets b WHERE $filter

-- name: size
SELECT
    (SELECT coalesce(sum(records), 0)::bigint FROM buckets) AS records,
    (
        SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
        FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'm')
    ) AS bytes

-- name: sessions
SELECT b.session, b.owner, b.records, opened.created_at AS opened_at, touched.created_at AS touched_at
FROM buckets b
CROSS JOIN LATERAL (
    SELECT r.created_at FROM records r WHERE r.bucket = b.id ORDER BY r.seq, r.id LIMIT 1
) opened
CROSS JOIN LATERAL (
    SELECT r.created_at FROM records r WHERE r.bucket = b.id ORDER BY r.seq DESC, r.id DESC LIMIT 1
) touched
WHERE b.session IS NOT NULL AND b.records > 0 AND $filter
ORDER BY b.session, coalesce(b.owner, '')

-- name: settings
SELECT name, setting FROM pg_settings WHERE name = ANY(%(names)s::text[])

-- name: alive
SELECT 1 AS one FROM store

-- name: held
-- The length of a text is known without its text, wherever that is kept.
SELECT coalesce(sum(
    octet_length(r.content) + coalesce(octet_length(r.metadata), 0) + coalesce(octet_length(r.provenance), 0)
    + octet_length(concat(r.uri, r.id, r.role, r."group", r.session, r.owner, r.key, r.media_type))
    + CASE WHEN v.model IS NULL THEN 4 * coalesce(vector_dims(v.vec), 0) ELSE 0 END
), 0)::bigint AS bytes
FROM records r LEFT JOIN vectors v ON v.pk = r.pk
WHERE $filter AND r.arrival IS NULL
