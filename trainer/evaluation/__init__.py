"""`hone eval`: versions compared on one file of scenarios, with intervals.

Others import `request`, `runner`, `figures` and `display`. Refuses: training, and running attempts
(`trainer.campaign.sampling`).
"""
