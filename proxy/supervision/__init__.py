"""Assemble the proxy's app, serve it, and run programs: `hone serve`, `hone up`, child processes.

Refuses: flags (`proxy.commands`). Others import `app`, `console`, `serve`, `supervisor`, `up`,
`workers`.
"""
