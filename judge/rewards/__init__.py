"""Where the parts of a reward come from: the registry `REWARDS`, and reward functions in child processes.

Refuses: making one reward of the parts (`judge.scoring.reward_parts`). Others import `kinds`, `kind` and `part`.

A kind of reward is a file `by_KIND.py`, beside which lies what it needs.
"""
