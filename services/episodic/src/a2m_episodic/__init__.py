"""The episodic tier: what happened, on Postgres with pgvector."""
