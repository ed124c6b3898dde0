"""The tiny model's training data: answers, good and flawed on purpose. Only make_model.py uses it."""
