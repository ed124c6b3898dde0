"""Read models: the store's content as frozen data for pages, `/hone/v1`, commands, judge and trainer.

One folder per subject: `trajectories`, `trajectory_detail`, `lists`, `comparison`, `review`, `versions`, `campaigns`,
`status`. Refuses: writing, printing and files.
"""
