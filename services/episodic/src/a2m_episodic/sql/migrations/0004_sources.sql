-- Filters read the parts of a provenance beside the metadata, whose names alike they hide.
UPDATE records r SET facts = (r.facts - ARRAY(
        SELECT 'provenance.' || part
        FROM unnest(ARRAY['source', 'principal', 'method', 'client', 'at', 'derived_from']) part
    )) || coalesce((
        SELECT jsonb_object_agg('provenance.' || part.key, part.value) FROM jsonb_each(r.provenance::jsonb) part
    ), '{}')
WHERE r.provenance IS NOT NULL OR r.facts::text LIKE '%"provenance.%';
COMMENT ON COLUMN records.facts IS
    'metadata and provenance for filters: scalars exact, a nested value as {}, nulls left out';
