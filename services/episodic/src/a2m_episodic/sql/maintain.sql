-- name: try_lock
SELECT pg_try_advisory_lock(%(number)s) AS mine

-- name: unlock
SELECT pg_advisory_unlock(%(number)s)

-- name: index_state
SELECT (
    SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass(%(name)s)
) AS valid

-- name: count_vectors
SELECT count(*) AS vectors FROM (SELECT 1 FROM vectors LIMIT %(limit)s) v

-- name: drop_index
DROP INDEX CONCURRENTLY IF EXISTS $name

-- name: build_memory
SELECT
    set_config('statement_timeout', '0', false),
    -- One process: several share the graph in memory that a container may not have, and take the CPU from searches.
    set_config('max_parallel_maintenance_workers', '0', false),
    set_config('maintenance_work_mem', n.kilobytes || 'kB', false),
    n.kilobytes
FROM (
    SELECT greatest(
        (SELECT setting::bigint FROM pg_settings WHERE name = 'maintenance_work_mem'),
        least(%(most)s::bigint, pg_table_size('vectors') / 1024 * 2)
    ) AS kilobytes
) n

-- name: build_index
CREATE INDEX CONCURRENTLY $name ON vectors USING hnsw ((vec::$type) $family)

-- name: purge_tombstones
DELETE FROM tombstones WHERE id IN (
    SELECT id FROM tombstones
    WHERE buried_at < clock_timestamp() - make_interval(secs => %(seconds)s)
    ORDER BY buried_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
RETURNING id

-- name: purge_buckets
-- An empty bucket matters while its last seq is ahead of the clock, or its session has records elsewhere.
DELETE FROM buckets WHERE id IN (
    SELECT id FROM buckets
    WHERE records = 0 AND NOT elsewhere AND last < (extract(epoch FROM clock_timestamp()) - 3600) * 1000000
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
RETURNING id

-- name: corpus
-- `given` and `deleted` grow as records come and go; the latter falls back after a crash.
SELECT c.documents, c.mean, c.baked, c.churn, p.last_value AS given, coalesce(s.n_tup_del, 0) AS deleted
FROM corpus c
CROSS JOIN pks p
LEFT JOIN pg_stat_user_tables s ON s.relid = 'lexical'::regclass

-- name: measure
SELECT count(*) AS documents, coalesce(avg(length), 0)::real AS mean, coalesce(max(pk), 0) AS last FROM lexical

-- name: clear_frequencies
DELETE FROM frequencies

-- name: count_frequencies
INSERT INTO frequencies (term, documents)
SELECT mark, count(*) FROM words, unnest(marks) AS mark
WHERE mark & 1 = 1
GROUP BY mark HAVING count(*) >= %(common)s

-- name: put_corpus
UPDATE corpus SET documents = %(documents)s, mean = %(mean)s, baked = %(baked)s, churn = %(churn)s

-- name: unbaked
SELECT l.pk, r.content, r.metadata
FROM lexical l JOIN records r ON r.pk = l.pk
WHERE l.pk > %(after)s AND l.baked <> %(baked)s::real
ORDER BY l.pk LIMIT %(limit)s

-- name: bake
UPDATE lexical SET baked = %(baked)s, weights = %(weights)s::sparsevec
WHERE pk = %(pk)s AND EXISTS (SELECT 1 FROM words w WHERE w.pk = %(pk)s AND w.marks = %(marks)s::bigint[])
