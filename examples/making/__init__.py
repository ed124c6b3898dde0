"""Make the examples' tiny models: tokenizer, training, sampling, and a note of the result."""
