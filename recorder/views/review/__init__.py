"""What is worth a person's minutes: pairs of runs that wait for a choice, shown blind, and what was chosen."""
