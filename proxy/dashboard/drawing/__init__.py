"""Charts drawn as SVG, in a process of their own, so that no call waits while matplotlib works.

Others import `drawer.py`: that process and its life. `host.py` runs in it. Refuses: how a chart looks
(`recorder.charts`), and which figures are drawn (`proxy.dashboard.drawn`).
"""
