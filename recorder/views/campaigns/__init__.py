"""Campaigns read back: their events, history, measures and progress. The trainer writes the events. Refuses: measuring
attempts (`trainer.campaign`) and what to do next.
"""
