"""What people collect and keep: datasets of trajectories, saved filters, trajectories to be reviewed.

Other packages import `datasets`, `saved_filters` and `review_requests`. Refuses: which trajectories match a filter
(`recorder.views.lists`), and which pairs are reviewed (`recorder.views.review`).
"""
