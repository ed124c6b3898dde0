"""How runs and groups end: when a group is ready, which kinds a run's turns are, and what closing makes of both.

Refuses: which group a run joins (`recorder.capture`), judging, and the clock's work (`recorder.maintenance`). Others
import `closing`, `lookup` and, for the rule's words, `readiness`.
"""
