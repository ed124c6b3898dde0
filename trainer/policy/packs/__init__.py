"""The packs of a step: which rows each has, its trained tokens, and the sums over all of them.

`gradient_shares` measures on a pack of its own. Refuses: computing a pack (`trainer.policy.update`), and choosing rows.
"""
