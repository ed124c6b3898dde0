"""Adapters away from the machine that wrote them: written once to `adapters.url`, fetched to the hosts of engines.

Others import `storage.py` (the place behind the URL), `sync.py` (a host's local copies) and `folder_names.py`. Refuses:
what an adapter's weights may be (`trainer.artifacts.adapters`, `proxy.versions.verification`), which versions are kept
(`recorder.maintenance.retention`), and loading them into an engine.
"""
