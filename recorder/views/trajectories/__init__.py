"""Trajectories, groups and calls as frozen data.

Other packages import `shapes` (the data), `transcripts` (the queries) and `by_response_id`; `assembly` builds the
shapes from rows. Refuses: writing.
"""
