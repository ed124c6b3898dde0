"""A project of a store: what nearly everything that reads or writes the record is asked about.

Owns: the pair. Refuses: opening or closing the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from recorder.store.database import Store


@dataclass(frozen=True, slots=True)
class Project:
    """One project's share of a store. Keys, aliases and all ids are unique within a project."""

    store: Store
    id: str
