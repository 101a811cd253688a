-- Names may take 2,048 bytes and a B-tree entry about 2,700, so what is unique or ordered over two names goes
-- through a digest (`slot`, `name`) or a surrogate (`bucket`).

CREATE TABLE store (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    dimensions integer
);
INSERT INTO store DEFAULT VALUES;

-- One row an (owner, session): its last seq, how many records it has, and whether some are in other tiers.
CREATE TABLE buckets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name uuid NOT NULL UNIQUE,
    owner text COLLATE "C",
    session text COLLATE "C",
    last bigint NOT NULL DEFAULT 0,
    records bigint NOT NULL DEFAULT 0,
    elsewhere boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
CREATE INDEX buckets_session ON buckets (session);
CREATE INDEX buckets_owner ON buckets (owner);

CREATE SEQUENCE pks;

CREATE TABLE records (
    pk bigint PRIMARY KEY,
    seq bigint NOT NULL,
    bucket bigint NOT NULL,
    salience double precision NOT NULL,
    revision bigint NOT NULL,
    moves bigint NOT NULL,
    access_count bigint NOT NULL,
    etag uuid NOT NULL,
    slot uuid UNIQUE,
    id text COLLATE "C" NOT NULL UNIQUE,
    created_at text COLLATE "C" NOT NULL,
    accessed_at text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    owner text COLLATE "C",
    session text COLLATE "C",
    role text COLLATE "C",
    "group" text COLLATE "C",
    key text COLLATE "C",
    embedding_model text COLLATE "C",
    arrival text COLLATE "C",
    uri text COLLATE "C",
    media_type text COLLATE "C",
    aliases text[] COLLATE "C" NOT NULL,
    provenance text,
    metadata text,
    facts jsonb NOT NULL,
    content text COLLATE "C" NOT NULL,
    features text
) WITH (fillfactor = 90);
COMMENT ON COLUMN records.slot IS 'digest of (owner, key)';
COMMENT ON COLUMN records.metadata IS 'the JSON text as it was given';
COMMENT ON COLUMN records.facts IS 'metadata for filters: scalars exact, a nested value as {}, nulls left out';
CREATE INDEX records_timeline ON records (bucket, seq);
CREATE INDEX records_seq ON records (seq);
CREATE INDEX records_owner ON records (owner, seq);
CREATE INDEX records_group ON records ("group") WHERE "group" IS NOT NULL;
CREATE INDEX records_arrival ON records (seq) WHERE arrival IS NOT NULL;
CREATE INDEX records_key ON records (key) WHERE key IS NOT NULL;
CREATE INDEX records_aliases ON records USING gin (aliases) WHERE aliases <> '{}';
CREATE INDEX records_facts ON records USING gin (facts jsonb_path_ops);

-- What a search reads, narrow so that a scan of all of it is cheap. `owner`, `seq` and `active` repeat the
-- record's, so that a search of one owner needs no join.
CREATE TABLE lexical (
    pk bigint PRIMARY KEY REFERENCES records ON DELETE CASCADE,
    seq bigint NOT NULL,
    length integer NOT NULL,
    baked real NOT NULL,
    active boolean NOT NULL,
    owner text COLLATE "C",
    weights sparsevec NOT NULL
);
COMMENT ON COLUMN lexical.weights IS 'BM25 weight of each term, with `baked` as the mean length of a record';

CREATE TABLE words (
    pk bigint PRIMARY KEY REFERENCES records ON DELETE CASCADE,
    marks bigint[] NOT NULL
);
COMMENT ON COLUMN words.marks IS 'hashes of words (even) and of terms (odd)';
CREATE INDEX words_marks ON words USING gin (marks);

CREATE TABLE vectors (
    pk bigint PRIMARY KEY REFERENCES records ON DELETE CASCADE,
    seq bigint NOT NULL,
    active boolean NOT NULL,
    owner text COLLATE "C",
    model text COLLATE "C",
    vec vector NOT NULL
);
COMMENT ON COLUMN vectors.vec IS 'the vector as it was given; indexes are on a cast of it to a fixed width';

CREATE TABLE tombstones (
    id text COLLATE "C" PRIMARY KEY,
    reason text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    owner text COLLATE "C",
    key text COLLATE "C",
    session text COLLATE "C",
    target text COLLATE "C",
    moves bigint NOT NULL,
    buried_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX tombstones_buried_at ON tombstones (buried_at);

-- Statistics of the corpus, refreshed in the background. `frequencies` holds the common terms alone: rare ones
-- are counted when asked.
CREATE TABLE corpus (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    documents bigint NOT NULL DEFAULT 0,
    mean real NOT NULL DEFAULT 20,
    baked real NOT NULL DEFAULT 20,
    churn bigint NOT NULL DEFAULT 0
);
INSERT INTO corpus DEFAULT VALUES;

CREATE TABLE frequencies (
    term bigint PRIMARY KEY,
    documents bigint NOT NULL
);
