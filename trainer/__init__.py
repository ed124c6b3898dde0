"""Scored groups become token rows, a loss, a step and a new version; campaigns and the learner drive it."""
