"""Several serving processes on one port of one machine: what one of them needs of the others.

Owns: finding each other, a door for each other, figures told together, requests passed to the worker whose they are.
Refuses: starting and restarting them (`proxy.supervision.workers`), and anything for proxies of other machines: those
meet in the store alone. Others import `peers`, `door`, `figures`, `sessions`.
"""
