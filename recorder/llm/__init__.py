"""Requests to a language model that Hone itself makes: client, rate limiter, LiteLLM, JSON replies, rubrics.

Others import `recorder.llm.client` for requests, `recorder.llm.json_reply` for replies, `recorder.llm.rubric` for
criteria and `recorder.llm.untrusted_text` for data inside a prompt. Refuses: the prompts themselves (`judge.llm`,
`trainer.scenario_generation`).
"""
