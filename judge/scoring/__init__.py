"""Scoring groups: combining reward parts, and the worker that claims groups and writes their scores.

Others import `worker`, `group_score`, `setup`, `rescoring`, `manual_score`, `checks` and `reward_parts`. Refuses:
asking a model (`judge.llm`) and running functions (`judge.rewards`).
"""
