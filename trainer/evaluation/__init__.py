"""Versions held against one another on one file of scenarios (`hone eval`): their attempts, how surely they differ.

Refuses: training, and attempting (`trainer.campaign.sampling`). `program` puts it together.
"""
