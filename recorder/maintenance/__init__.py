"""Changes by time and by deletion: sweeps, retention, deleting trajectories; export, copies, backups, integrity checks.

Others import `recorder.maintenance.sweep` and `recorder.maintenance.deletion`. Refuses: deciding what to delete
(people and `recorder.retention_days` do), and the rules for ending groups (`recorder.queue.groups`).
"""
