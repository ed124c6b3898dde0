"""Several serving processes on one port of one machine: how the workers talk to each other.

Owns: finding each other, a socket per worker, and requests that are forwarded to the worker that holds their session.
Refuses: starting and restarting workers (`proxy.supervision.workers`), merging their metrics (`proxy.metrics`), and
proxies of other machines: those share the store only. Others import `peers`, `worker_socket` and `forwarding`.
"""
