"""How trajectories and groups end: when a group is ready, what closing does, call kinds, shadow groups, disputes.

Others import `recorder.queue.groups.closure` to close, `recorder.queue.groups.lookup` to find a group and
`recorder.queue.groups.readiness` for the rule. Refuses: which group a trajectory joins (`recorder.capture`), judging,
and timeouts (`recorder.maintenance`).
"""
