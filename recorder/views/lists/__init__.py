"""Lists of runs and groups, newest first: by which words they are narrowed, a page of them, how each is told.

Refuses: writing, conversations (`recorder.views`), printing.
"""
