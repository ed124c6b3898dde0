"""Full-text search over what was said: what of a call is searched, filled behind the commit, emptied by deletion.

Refuses: filters of any other kind. Its face: `asking.runs_saying`, `snippets.snippets`, `filler.Filler`, and for who
writes or deletes calls `queue`, `erasing`.
"""
