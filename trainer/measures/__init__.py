"""By what a campaign's versions are told from one another: whose attempts are compared, by what, and how surely.

Owns: the sides of a comparison, the yardstick, and wins in one blind group. Pure. Refuses: attempting, scoring and
stopping (`trainer.campaign`). Others import `sides`, `yardstick` and `wins`.
"""
