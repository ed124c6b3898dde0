"""Status of a project: events, figures, what each stage of the loop waits for, judging, tools, client problems.

Read by `hone up`, `hone status`, `hone show`, `/hone/v1`, `/metrics` and the pages. `project` has the whole status;
`stages` decides what the loop waits for, and the learner begins its steps by it. Refuses: changing anything.
"""
