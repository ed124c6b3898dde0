"""How the demo's tiny model is made: conversations, tokenizer, training, measuring. Only make_model.py uses it."""
