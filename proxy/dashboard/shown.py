"""What pages are made with.

Owns: the parts that every page is given, and how a handler asks for them. Refuses: pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from litestar.di import NamedDependency

from proxy.api.standing import Stands
from proxy.api.steering import Hone
from proxy.dashboard.drawing.drawer import Drawer
from proxy.dashboard.tries import Tries
from recorder.store.project import Project


@dataclass(frozen=True, slots=True)
class Shown:
    """What pages work with."""

    hone: Hone  # what a change goes through
    project: Project  # by connections of the pages' own, whose queries have a time limit: only read
    stands: Stands  # how everything stands, and what this process knows of itself
    drawer: Drawer  # of charts; who makes this ends it
    tries: Tries = field(default_factory=Tries)  # to sign in


ForPages = NamedDependency[Shown]
