"""Lists of trajectories and groups, newest first: filters, pages, and the line of each.

Other packages import `trajectories`, `groups`, `filters`, `filter_values`, `columns` and `short_ids`. Refuses: writing,
conversations (`recorder.views.trajectories`), printing.
"""
