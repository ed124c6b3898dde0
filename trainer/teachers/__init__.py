"""Teachers of sampled answers: the model itself with a hint from what came next, or a stronger model at a URL.

Turns become rows with lessons here. Refuses: weights (`trainer.objectives.lessons`), and the passes that compute what
our own weights say (`trainer.step`).
"""
