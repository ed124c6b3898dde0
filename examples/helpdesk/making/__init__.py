"""The training data and the measuring of the demo's tiny model. Only make_model.py uses it."""
