"""Attribution, the proxy's part: which evidence a call carries, and in which order evidence is used.

Refuses: what the record knows (`recorder.capture.resolver`, `recorder.capture.lookups`). Others import `attributor`,
`conversations` and `hints`.
"""
