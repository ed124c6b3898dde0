"""What a training step needs of a card: memory that is computed from the model's shapes, and the plan that follows.

Others import `planner`, `plan` and `cards`, and `step_memory` late, because it loads torch. Refuses: what a model is
(`recorder.models`), and memory that is full in spite of a plan (`trainer.policy.memory`).
"""
