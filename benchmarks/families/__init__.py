"""Families of models: what people train, as tiny random models, and what Hone does with each.

`catalog` has the models, `trainer_half` what the trainer does with one, `engine_half` what a real vLLM on this CPU does
with it, `results` the figures and the table of docs/models.md. `python -m benchmarks.families` runs them (`make
families`).
"""
