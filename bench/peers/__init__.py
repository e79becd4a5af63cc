"""Other readers of the same bytes, each used as its own documentation shows."""
