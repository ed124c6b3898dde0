"""Asking a judge model: the prompt, one request through LiteLLM, reading the reply, and RULER and rubrics on top.

Others import `group_text`, `judge_model`, `panel`, `prompt`, `rubric`, `rubric_prompt` and `ruler`. Refuses: the use of
the scores (`judge.rewards`, `judge.scoring`).
"""
