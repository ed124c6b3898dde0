"""The programs `hone train`, `hone learn` and `hone eval`, and the services that they find running or start.

Others import `train`, `learner`, `estimate`, `services` and `examiner`. Refuses: flags and exit codes
(`trainer.commands`).
"""
