"""One call as data: messages and their identity, tokens as bytes, trainability, redaction, the lineage rules. Pure.

Others import `recorder.messages.calls` (a call as dialects pass it), `recorder.messages.plain_text` (text of a
message), `recorder.messages.content_hashes` (equality of messages) and `recorder.messages.trainability`. Refuses: the
database and the network.
"""
