"""One call as data: messages and their identity, tokens as bytes, what may be trained, what is redacted. Pure.

Refuses: the database, the network, and whose call it is. Others import `turns` for what a dialect hands over,
`canonical` for when two messages are one, `trainable` for the words of what may be trained.
"""
