"""The processes of one trainer, its ranks: starting them, what they send each other, and sharing a base's weights.

Others import `group.py` (`Ranks`, `RankGroup`), `launch.py` and `base_shares.py`. Refuses: what a rank computes
(`trainer.policy.update`, `trainer.step`), the store, files of versions and leases, which the first rank alone has.
"""
