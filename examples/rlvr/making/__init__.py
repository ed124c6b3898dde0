"""What the tiny model is taught: answers, good and flawed on purpose. Only make_model.py uses it."""
