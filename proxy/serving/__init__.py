"""One generating call: read, attribute, send to the model, commit, answer. And the model routes that are not recorded.

Refuses: wire formats, attribution, what is written. Others import `calls`, `running_call`, `model_requests`,
`continuity`, `judge_calls`, `passthrough`, `prompt_lists` and `prompt_splice`.
"""
