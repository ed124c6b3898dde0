"""Full-text search over recorded calls: which text of a call is indexed, the background indexer, and queries.

Others import `recorder.search.matches` to search, `recorder.search.indexer` to run the indexer and to remove deleted
calls, and `recorder.search.documents` to queue calls. Refuses: every other filter of a list (`recorder.views.lists`).
"""
