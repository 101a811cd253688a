-- name: words
r.pk IN (SELECT w.pk FROM words w WHERE w.marks @> $marks)

-- name: buckets
SELECT b.id FROM buckets b WHERE $filter
