"""Asking a language model: the client, its rate limiter, LiteLLM's edge, JSON replies, untrusted text, rubrics.
Refuses: what is asked (`judge.llm`, `trainer.scenario_generation`).
"""
