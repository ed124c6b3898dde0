"""`hone calibrate`: how well judges agree with human labels, their biases, and which judge is good enough.

Others import `comparison`, `figures`, `judged_groups` and `labels`. Refuses: the output
(`judge.commands.calibration_view`). No label is ever part of a prompt: the judge answers first, and its scores are
compared with the labels here.
"""
