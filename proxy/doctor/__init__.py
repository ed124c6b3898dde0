"""Checks of what Hone needs to record, judge and train: one list for `hone up` and `hone doctor`.

Refuses: fixing anything, and printing. Others import `checkup`, `machine` and `engines`; `hone demo` imports
`environment`, `hone init` imports `discovery`.
"""
