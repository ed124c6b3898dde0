"""2048 on a small board: an agent plays, and a function rewards it by replaying its moves."""
