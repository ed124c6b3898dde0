"""What must be right before Hone can record, judge and learn: one list of checks, for `hone up` and `hone doctor`.

Refuses: mending anything, and printing. Others import `checkup`; `hone demo` imports `environment`, `hone init` imports
`found` and `first_settings`.
"""
