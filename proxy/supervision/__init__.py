"""Assemble the proxy's app, serve it, and run programs: `hone serve`, `hone up`, child processes.

Refuses: flags (`proxy.commands`). Others import `app`, `console`, `run_file`, `serve`, `supervisor`, `up`,
`workers`.
"""
