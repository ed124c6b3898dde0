"""How the examples' tiny models are made: tokenizer, training, sampling, a note of what came out. For makers only."""
