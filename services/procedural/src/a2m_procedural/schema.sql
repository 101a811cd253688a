CREATE TABLE IF NOT EXISTS facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS states (
    id TEXT PRIMARY KEY,
    etag TEXT NOT NULL,
    file TEXT NOT NULL,
    content TEXT NOT NULL,
    salience REAL NOT NULL,
    access_count INTEGER NOT NULL,
    accessed_at TEXT,
    embedding BLOB,
    embedding_model TEXT,
    features TEXT,
    arrival TEXT
);

CREATE TABLE IF NOT EXISTS tombstones (
    id TEXT PRIMARY KEY,
    buried_ms INTEGER NOT NULL,
    stone TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS tombstones_by_age ON tombstones (buried_ms);
CREATE INDEX IF NOT EXISTS tombstones_forgotten ON tombstones (json_extract(stone, '$.seq'), id)
    WHERE json_extract(stone, '$.reason') = 'forgotten';

CREATE TABLE IF NOT EXISTS elsewhere (
    bucket TEXT PRIMARY KEY
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS intents (
    commit_id TEXT PRIMARY KEY,
    base TEXT,
    effects TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS erasures (
    number INTEGER PRIMARY KEY,
    plan TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS past (
    id TEXT PRIMARY KEY
) WITHOUT ROWID;
