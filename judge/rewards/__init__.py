"""The parts of a reward: the registry of kinds (`kinds`) and what each kind needs, such as processes for functions.

Others import `kinds`, `judge_context`, `part`, `functions`, `code_checks` and `rubrics`. Refuses: combining parts into
one reward (`judge.scoring.reward_parts`).
"""
