"""Totals of recorded calls: by time and by trajectory, and the background follower that counts each call once.

Others import `recorder.totals.follower` to run the follower, `recorder.totals.time_rows` to read totals by time,
`recorder.totals.histograms` for percentiles, and `recorder.totals.call_facts` for the kinds of errors and facets.
Refuses: pages and queries over a range of time (`recorder.views.traffic`), and metrics of a process (`/metrics`).
"""
