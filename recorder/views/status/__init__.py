"""How learning stands, for people and dashboards: what happened, what is waited for, what was raised, the figures.

May use the store, the registry, who holds what, groups, lists, the work, and the sweep's forecast; read by `hone up`,
`hone status`, `hone show`, `/metrics` and the pages. All of it as they show it: `status`. What the loop waits for:
`stages`, by which the learner begins its steps too.
"""
