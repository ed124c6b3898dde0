"""How the names of an alias's versions and trials begin, in folders and in the engine. Pure; it imports no store.

Refuses: names that users see (`recorder.registry.versions`).
"""

from __future__ import annotations

import re


def alias_slug(alias_name: str) -> str:
    """Return the alias's name in a form that is valid in directory and engine names."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", alias_name).lstrip(".") or "alias"


def trial_prefix(alias_name: str) -> str:
    """How the engine names and folders of an alias's trials begin (`recorder.queue.training.adapter_trials`).

    No version has such a name: what follows the @ is no number.
    """
    return f"{alias_slug(alias_name)}@trial-"
