"""Views of campaigns: their events, history, measures and progress. The trainer writes the events. Refuses: measuring
attempts (`trainer.campaign`), and decisions.
"""
