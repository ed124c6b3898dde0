"""Charts drawn as SVG, in a process of their own, so that no call waits while matplotlib works.

`chart.py` is what a chart is, `drawer.py` the process that draws it and its life, `draw.py` the drawing itself, which
only that process loads. Refuses: which figures are drawn (`proxy.dashboard.drawn`).
"""
