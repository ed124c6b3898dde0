"""Leaf helpers that every package uses: text for people, JSON, exit codes, times, URLs, patterns, a bounded map.

Owns: what all commands print with (`terminal`) and end with (`errors`), `hours`, `urls`, `patterns`, `rules`, `lru`,
`rate_limited_log`. Refuses: importing another folder of Hone.
"""
