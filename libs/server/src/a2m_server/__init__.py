"""One port, one dispatcher, one HTTP app and one stdio server for every A2M store."""
