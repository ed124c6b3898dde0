"""Totals of recorded calls: by time and by trajectory, and the background follower that counts each call once.

Others import `recorder.totals.follower` to run the follower, `recorder.totals.time_rows` to read totals by time,
`recorder.totals.histograms` for percentiles, and `recorder.totals.call_facts` for dimensions and facets.
Refuses: a range of time as a view (`recorder.views.status.traffic`), and metrics of a process (`proxy.metrics`).
"""
