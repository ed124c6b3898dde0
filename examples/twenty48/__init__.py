"""2048 on a small board: an agent plays, its own moves are replayed, and a function is the only judge."""
