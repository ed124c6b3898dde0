"""What the Responses API needs beside a call: earlier answers, conversations, background, reading and deleting.

Refuses: the format itself (`proxy.dialects.responses`).
"""
