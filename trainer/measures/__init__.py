"""How a campaign's versions are compared: the arms of a comparison, the measure, and wins in blind groups.

Others import `arms`, `campaign_measure` and `judges`. Refuses: running attempts, scoring and stopping
(`trainer.campaign`).
"""
