-- name: recent
SELECT r.pk FROM records r WHERE r.status = 'active' AND $filter
ORDER BY r.seq DESC, r.id DESC LIMIT %(limit)s

-- name: recent_of_buckets
SELECT r.pk
FROM ($buckets) b
CROSS JOIN LATERAL (
    SELECT r.pk, r.seq, r.id FROM records r
    WHERE r.bucket = b.id AND r.status = 'active' AND $filter
    ORDER BY r.seq DESC, r.id DESC LIMIT %(limit)s
) r
ORDER BY r.seq DESC, r.id DESC LIMIT %(limit)s

-- name: candidates
SELECT r.pk FROM records r WHERE r.status = 'active' AND $filter LIMIT %(limit)s

-- name: statistics
-- Common terms and a large corpus by what was counted in the background, everything else by the index now.
SELECT
    t.term,
    coalesce(f.documents, (SELECT count(*) FROM words w WHERE w.marks @> ARRAY[t.term])) AS held,
    n.documents
FROM unnest(%(terms)s::bigint[]) AS t(term)
LEFT JOIN frequencies f ON f.term = t.term
CROSS JOIN (
    SELECT CASE
        WHEN c.documents >= %(many)s THEN c.documents
        ELSE (SELECT count(*) FROM lexical)
    END AS documents
    FROM corpus c
) n

-- name: statistics_of
-- Of a few records, as exactly as their number allows: what is rare among one owner's is not rare in all.
SELECT m.mark AS term, count(*) AS held, cardinality(%(pks)s::bigint[]) AS documents
FROM words w CROSS JOIN LATERAL unnest(w.marks) AS m(mark)
WHERE w.pk = ANY(%(pks)s::bigint[]) AND w.marks && %(terms)s::bigint[] AND m.mark = ANY(%(terms)s::bigint[])
GROUP BY m.mark

-- name: lexical
-- Weights are found by a hash of 30 bits and marks by one of 63: marks decide whether a term is really held.
SELECT s.pk, s.score
FROM (
    SELECT l.pk, l.seq, l.weights <#> %(query)s::sparsevec AS score
    FROM lexical l $join
    WHERE l.active AND $filter AND l.weights <#> %(query)s::sparsevec < 0
    ORDER BY score, l.seq DESC, l.pk DESC
    LIMIT %(limit)s + 8
) s
JOIN words w ON w.pk = s.pk
WHERE w.marks && %(terms)s::bigint[]
ORDER BY s.score, s.seq DESC, s.pk DESC
LIMIT %(limit)s

-- name: holding
l.pk IN (SELECT w.pk FROM words w WHERE w.marks && %(terms)s::bigint[])

-- name: nearest
-- By the index, which may come up short under a filter.
SELECT n.pk, n.distance
FROM (
    SELECT v.pk, v.seq, v.vec $operator %(query)s AS distance
    FROM vectors v $join
    WHERE v.active AND v.model $model AND $filter
    ORDER BY v.vec::$type $operator %(query)s::$type
    LIMIT %(limit)s * $factor
) n
ORDER BY n.distance, n.seq DESC, n.pk DESC
LIMIT %(limit)s

-- name: exact
-- By every vector that the filter leaves. A zero vector has no direction: it lies between near and far.
SELECT v.pk, v.vec $operator %(query)s AS distance
FROM vectors v $join
WHERE v.active AND v.model $model AND $filter
ORDER BY coalesce(nullif(v.vec $operator %(query)s, 'NaN'), 1), v.seq DESC, v.pk DESC
LIMIT %(limit)s
