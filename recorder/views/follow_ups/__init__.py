"""What came next after an answer: messages, tool errors, retries, edits, feedback in words, or nothing. Read-only.

Other packages import `rules` (the events, and which turn each answers) and `loader` (the events of one trajectory).
"""
