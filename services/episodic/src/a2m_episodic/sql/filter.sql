-- name: words
r.pk IN (SELECT w.pk FROM words w WHERE w.marks @> $marks)

-- name: without
-- In parts, each of which has an index.
(r.unseen OR (r.embedding_model < $model OR r.embedding_model > $model) AND r.content ~ '[^\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]')

-- name: buckets
SELECT b.id FROM buckets b WHERE $filter
