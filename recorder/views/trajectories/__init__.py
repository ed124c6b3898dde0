"""Trajectories, groups and calls as frozen data.

Other packages import `shapes` (the data), `transcripts` (the queries), `by_response_id` and `first_turns`; `assembly`
builds the shapes from rows. Refuses: writing.
"""
