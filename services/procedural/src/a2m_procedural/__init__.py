"""The procedural tier: skills in a git repository."""
