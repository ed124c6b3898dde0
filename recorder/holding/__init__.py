"""Who holds what: leases on named things, who their holders are, and which programs say that they are there.

Refuses: claims on groups, which are work (`recorder.work.claims`).
"""
