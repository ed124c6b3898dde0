"""HTTP in small pieces: raw ASGI, server-sent events, keep-alive comments. Knows nothing of Hone."""
