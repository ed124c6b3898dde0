"""What pages are made with.

Owns: the parts that every page is given, and how a handler asks for them. Refuses: pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from litestar.di import NamedDependency

from proxy.api.actions import HoneActions
from proxy.api.status import StatusService
from proxy.dashboard.chart_drawer import ChartDrawer
from proxy.dashboard.login_throttle import LoginThrottle
from recorder.store.database import Project


@dataclass(frozen=True, slots=True)
class PageContext:
    """What pages work with."""

    hone: HoneActions  # what a change goes through
    project: Project  # by connections of the pages' own, whose queries have a time limit: only read
    stands: StatusService  # how everything stands, and what this process knows of itself
    drawer: ChartDrawer  # of charts; who makes this ends it
    tries: LoginThrottle = field(default_factory=LoginThrottle)  # to sign in


ForPages = NamedDependency[PageContext]
