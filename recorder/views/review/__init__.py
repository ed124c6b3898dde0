"""Human review: pairs of trajectories that need a choice, shown blind, and the recorded choices.

Other packages import `queue`, `shapes`, `trajectories` (blind pairs) and `human_labels`. Refuses: what a choice does to
a score (`judge.rewards.human_choice`).
"""
