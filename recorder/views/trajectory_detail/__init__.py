"""One trajectory in detail: its conversation, its outcome, its timeline and its tokens. Read-only.

Other packages import `loader` (everything at once), `tokens` (one call's), and the shapes in `conversation`, `outcome`
and `timeline`.
"""
