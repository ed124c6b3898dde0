"""LoRA on a base: what `trainer.target` selects, how experts compute theirs, and the form that files have.

Others import `targets`, `expert_layer` and `file_layout`. Refuses: loading a base and its forward pass
(`trainer.policy`), and writing files (`trainer.artifacts`).
"""
