"""2048 on a small board: an agent plays, its own moves are replayed, and a function is all the judge there is."""
