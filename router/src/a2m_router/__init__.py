"""The memory router: capacity, spill, promotion, moves and merge over A2M tiers."""
