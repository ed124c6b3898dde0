"""A long run: the three forms in turn and the first one again, with every form measured on the way."""
