"""A judge held against people: how far it agrees with their labels, what biases it, and which judge is good enough.

Others import `figures`, `pairs` and `choosing`. All of it is pure. Refuses: asking judges, labels' files and rows, and
how it reads. No label ever stands in a prompt: a judge is asked first, and what it said is compared here.
"""
