"""The parts that every page handler gets, and the dependency by which a handler requests them."""

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
    """What page handlers work with."""

    hone: HoneActions  # changes go through it
    project: Project  # read-only connections of the pages, with a query time limit
    status_service: StatusService  # status of the project and of this process
    drawer: ChartDrawer  # its creator closes it
    tries: LoginThrottle = field(default_factory=LoginThrottle)


ForPages = NamedDependency[PageContext]
