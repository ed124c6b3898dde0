"""Full-text search over what was said: what of a call is searched, filled behind the commit, emptied by a deletion, asked.

Refuses: filters of any other kind (who lists runs asks for the ids that say something). Its face: `asking.runs_saying`,
`snippets.snippets`, `filler.Filler`, and for who writes or deletes calls `queue` and `forgetting`.
"""
