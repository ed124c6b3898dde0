"""Charts drawn as SVG, in a process of their own, so that no call waits while matplotlib works.

`drawer.py` is that process's life, `host.py` what runs in it, `wire.py` how a chart gets there. Refuses: how a chart is
drawn (`recorder.charts`), and which figures are (`proxy.dashboard.drawn`).
"""
