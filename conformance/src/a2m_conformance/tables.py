"""The protocol's table of capabilities, as this suite reads it."""

METHODS = {
    "memory/describe": "core",
    "memory/remember": "core",
    "memory/recall": "core",
    "memory/timeline": "core",
    "memory/forget": "core",
    "memory/promote": "tiers",
    "memory/consolidate": "tiers",
    "memory/reinforce": "salience",
    "memory/session/list": "sessions",
    "memory/session/close": "sessions",
    "memory/fetch": "keys",
    "memory/events": "events",
    "memory/events/subscribe": "events",
    "memory/events/unsubscribe": "events",
    "memory/summarize": "summarize",
}

CAPABILITIES = frozenset(METHODS.values()) | {"scopes", "embeddings", "external", "prompt"}

KINDS = frozenset({"working", "episodic", "semantic", "procedural"})

FIELDS = {
    "id": "core",
    "content": "core",
    "created_at": "core",
    "role": "core",
    "metadata": "core",
    "group": "core",
    "tier": "tiers",
    "salience": "salience",
    "access_count": "salience",
    "accessed_at": "salience",
    "owner": "scopes",
    "session": "sessions",
    "key": "keys",
    "revision": "keys",
    "embedding": "embeddings",
    "uri": "external",
    "media_type": "external",
}

NULLABLE = frozenset({"owner", "session", "key", "uri", "media_type"})

WRONG_VALUES = {
    "salience": ("high", True, [1]),
    "owner": (7, ["me"], {"name": "me"}),
    "session": (7, ["s"], {"name": "s"}),
    "key": (7, ["k"], {"name": "k"}),
    "embedding": ("0.1 0.2", {"0": 1}, ["a", "b"]),
    "uri": (7, ["https://example.org"], {"href": "x"}),
    "media_type": (7, ["text/plain"], {"type": "x"}),
}
