"""The parts of a reward: the registry of kinds (`kinds`) and what each kind needs, such as child processes of
functions.

Others import `kinds`, `judge_context`, `part`, `functions`, `model_kinds` and `rubrics`. Refuses: combining parts into
one reward (`judge.scoring.reward_parts`).
"""
