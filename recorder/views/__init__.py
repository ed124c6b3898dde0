"""What was recorded, read back: transcripts, lists, answers by their ids, exports. Others import `views`,
`transcripts`.

Refuses: writing, printing and files.
"""
