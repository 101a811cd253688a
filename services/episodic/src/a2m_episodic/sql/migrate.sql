-- name: lock
SELECT pg_advisory_xact_lock(%(number)s)

-- name: prepare
CREATE SCHEMA IF NOT EXISTS $schema;
CREATE EXTENSION IF NOT EXISTS vector;
SELECT set_config('search_path', '$schema, ' || current_setting('search_path'), true);
CREATE TABLE IF NOT EXISTS migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)

-- name: applied
SELECT number FROM migrations

-- name: record
INSERT INTO migrations (number, name) VALUES (%(number)s, %(name)s) RETURNING number
