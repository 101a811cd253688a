-- What has content and no vector waits to be seen by a model; what has one of another model may be asked for.
ALTER TABLE records ADD COLUMN unseen boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN records.unseen IS 'whether it has content that is not blank, and no vector';
-- Blank as Python has it.
UPDATE records r SET unseen = true
WHERE NOT EXISTS (SELECT FROM vectors v WHERE v.pk = r.pk)
    AND r.content ~ '[^\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]';
CREATE INDEX records_unseen ON records (seq) WHERE unseen;
CREATE INDEX records_model ON records (embedding_model) WHERE embedding_model IS NOT NULL;
