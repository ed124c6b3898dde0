"""Read models of versions: ancestry, steps, one version in detail, tasks before and after, served trajectories."""
