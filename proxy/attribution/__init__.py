"""Whose call is this, as the proxy sees it: what a call lets on, and the order in which evidence is believed.

Refuses: what the record knows (`recorder.capture.resolver`, `recorder.capture.lookups`). Others import `attributor` and
`hints`.
"""
