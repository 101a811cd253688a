-- Metadata that goes by the name of a part of the provenance does not count as one; there are more parts now.
UPDATE records SET facts = facts - ARRAY['provenance.origins', 'provenance.ancestors']
WHERE facts ?| ARRAY['provenance.origins', 'provenance.ancestors'];
