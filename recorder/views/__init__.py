"""Read models: what the store holds, as frozen data for pages, `/hone/v1`, commands, judge and trainer.

One folder a subject: `trajectories`, `trajectory_detail`, `lists`, `comparison`, `review`, `versions`, `campaigns`,
`status`. Refuses: writing, printing and files.
"""
