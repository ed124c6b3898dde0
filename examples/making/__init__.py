"""Making the examples' tiny models: tokenizer, training, sampling, and a note of the result. Only makers use it."""
