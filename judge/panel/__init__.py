"""Several replies about one group: all of them asked for, made into one, and what a person says where they disagree."""
