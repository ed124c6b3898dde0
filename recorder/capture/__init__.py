"""Record calls: which trajectory a call belongs to, the rows of a call, and the writer that commits them in batches.

The proxy imports `recorder.capture.recorder` to record, `recorder.capture.resolver` to attribute a call and
`recorder.capture.tool_calls` for tool calls. Refuses: wire formats, reading transcripts, and what a caller does if a
call could not be written.
"""
