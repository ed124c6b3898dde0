"""Where the parts of a reward come from: the registry `REWARDS`, and reward functions in child processes.

Refuses: making one reward of the parts (`judge.scoring.combine`). Others import `kinds` and `part`.
"""
