-- What was forgotten is listed in the order of forgetting, for backups.
CREATE INDEX tombstones_forgotten ON tombstones (seq, id) WHERE reason = 'forgotten';
