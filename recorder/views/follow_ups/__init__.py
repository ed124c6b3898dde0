"""What came next after an answer: messages, tool errors, retries, edits, feedback in words, or nothing. Read-only.

Other packages import `events` (the data) and `loader` (the events of one trajectory); `rules` decides which answer each
of them is about.
"""
