"""Objectives: each turns recorded data into rows whose tokens have their final weights in a step's loss.

One file for each learning signal; `registry` has them all. The trainer adds up weight × token loss, and divides by
nothing.
"""
