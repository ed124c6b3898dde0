"""Run an example's campaign: programs around Hone, `hone train`, a summary, a picture, tables."""
