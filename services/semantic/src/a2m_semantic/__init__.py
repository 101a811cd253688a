"""The semantic tier: what is true now, on Qdrant."""
