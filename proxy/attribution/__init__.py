"""Whose call is this, as the proxy sees it: what a call lets on, and the order in which evidence is believed.

Refuses: what the record knows (`recorder.capture.finder`, `recorder.lineage`). Others import `attributor` and `hints`.
"""
