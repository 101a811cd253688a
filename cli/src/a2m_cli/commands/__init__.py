"""The commands of `a2m`: thin, and quick to import, because each run imports them all."""
