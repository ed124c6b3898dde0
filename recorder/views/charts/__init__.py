"""Charts of the views, as data: browsers and the server's images draw the same ones.

Owns: which figures of versions, steps, campaigns and traffic a chart has, and what an empty one waits for. Refuses:
drawing (`recorder.stats.charts`, the script of the pages), and the figures themselves (`recorder.views`).
"""
