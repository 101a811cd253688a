"""Text analysis, lexical scores and rank fusion shared by every tier that searches."""
