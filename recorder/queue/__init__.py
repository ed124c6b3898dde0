"""The store as a queue: who takes what, for how long, and what is handed in (scores, feedback, attempts, steps).

Refuses: doing the work. Every later write of a holder depends on its owner and epoch.
"""
