"""How an example's campaign is run and told: programs around Hone, `hone train`, a summary, a picture, tables."""
