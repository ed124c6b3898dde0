"""`hone scenarios generate`: a model writes tasks for a server's tools or a description, and code checks each one.

Others import `program` and `tools`. Refuses: calling any tool, and the form of a scenario file
(`trainer.tasks.scenarios`).
"""
