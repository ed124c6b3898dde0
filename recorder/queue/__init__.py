"""The store as a work queue: groups, campaigns and their attempts, claims and leases, feedback, scores, training steps.

Every write of a claim's holder is guarded by its owner and epoch. Others import the module of the object they work on:
`recorder.queue.claims`, `recorder.queue.campaigns`, `recorder.queue.leases`, `recorder.queue.judging.scores` and so on.
Refuses: the work itself (judge and trainer).
"""
