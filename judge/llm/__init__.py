"""Asking a judge model: the prompt, one request through LiteLLM, reading the reply, and RULER and rubrics on top.

Others import `base`, `judge_model`, `panel`, `prompt`, `rubric`, `rubric_prompt`, `ruler` and `group_text`. Refuses:
what becomes of the scores (`judge.rewards`, `judge.scoring`).
"""
