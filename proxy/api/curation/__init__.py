"""Routes of /hone/v1 for what people select, collect and keep: selections, datasets, saved filters.

Other packages import `selection` (the pages use it too), `datasets` and `saved_filters`. Refuses: what these are
(`recorder.curation`).
"""
