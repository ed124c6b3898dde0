"""One project of an open store: the pair that most reads and writes of the record take.

Owns: the pair. Refuses: opening and closing the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from recorder.store.database import Store


@dataclass(frozen=True, slots=True)
class Project:
    """A project's share of an open store. Keys, aliases and ids are unique within a project."""

    store: Store
    id: str
