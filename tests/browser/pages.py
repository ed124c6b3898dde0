"""Every page there is, by the table of pages, and where on the rich store each is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from litestar.handlers import HTTPRouteHandler

from proxy.dashboard.pages.lists import SEARCH
from proxy.dashboard.routes import HANDLERS
from tests.browser.rich import Rich


@dataclass(frozen=True)
class Where:
    """A page, what is to be seen there, and its address below /hone."""

    path: str  # of its handler
    shows: str
    on: Callable[[Rich], str]

    def __str__(self) -> str:
        return f"{self.path} {self.shows}".strip()


# What is opened on the rich store beside the pages that stand by themselves.
OPENED: Final[Sequence[Where]] = (
    Where("/groups/{group:str}", "eight", lambda rich: f"/groups/{rich.group}"),
    Where("/groups/{group:str}", "thirty turns", lambda rich: f"/groups/{rich.long_group}"),
    Where("/groups/{group:str}/judging", "replied", lambda rich: f"/groups/{rich.group}/judging"),
    Where("/groups/{group:str}/judging", "asked", lambda r: f"/groups/{r.group}/judging?prompt={r.score}"),
    Where("/trajectories/{trajectory:str}", "everything", lambda rich: f"/trajectories/{rich.run}"),
    Where("/trajectories/{trajectory:str}", "thirty turns", lambda rich: f"/trajectories/{rich.long_run}"),
    Where("/trajectories/{trajectory:str}", "open", lambda rich: f"/trajectories/{rich.open_run}"),
    Where(
        "/trajectories/{trajectory:str}/calls/{call:str}",
        "tokens",
        lambda rich: f"/trajectories/{rich.run}/calls/{rich.call}",
    ),
    Where(
        "/trajectories/{trajectory:str}/calls/{call:str}/ask-again",
        "to be asked",
        lambda rich: f"/trajectories/{rich.run}/calls/{rich.call}/ask-again",
    ),
    Where("/trajectories/{trajectory:str}/delete", "asked", lambda rich: f"/trajectories/{rich.run}/delete"),
    Where("/sessions/{name:path}", "of a client", lambda _: "/sessions/mail-19"),
    Where("/trajectories", "sorted", lambda _: "/trajectories?sort=tokens&limit=5"),
    Where("/trajectories", "search", lambda _: f"/trajectories?{SEARCH}=depot&alias=helpdesk"),
    Where("/trajectories", "nothing found", lambda _: "/trajectories?state=abandoned"),
    Where("/search", "nothing found", lambda _: "/search?q=traj_nobody"),
    Where("/traffic", "by client", lambda _: "/traffic?range=30d&split=client&origin=any"),
    Where("/campaigns/{campaign:str}", "its results", lambda rich: f"/campaigns/{rich.campaign}"),
    Where("/programs/{name:str}", "a log", lambda _: "/programs/proxy"),
    Where("/versions/{name:path}", "trained", lambda rich: f"/versions/{rich.canary}"),
    Where("/versions/{name:path}", "the base", lambda _: "/versions/helpdesk@0"),
    Where("/versions/{name:path}", "rejected", lambda _: "/versions/helpdesk@3"),
    Where("/versions/move", "promote", lambda rich: f"/versions/move?do=promote&version={rich.version}"),
    Where("/versions/move", "rollback", lambda _: "/versions/move?do=rollback&alias=helpdesk"),
    Where("/versions/move", "canary", lambda rich: f"/versions/move?do=canary&share=20&version={rich.canary}"),
)
# What is no page: part of one, or a file.
PARTS: Final = frozenset({
    "/static/{name:str}", "/charts/{name:str}", "/traffic/charts/{name:str}", "/programs/{name:str}/lines",
    "/campaigns/{campaign:str}/report.html", "/campaigns/{campaign:str}/charts/{name:str}",
})  # fmt: skip
# What is a page only of what it is asked about.
_ASKED: Final = frozenset({"/versions/move"})


def paths() -> list[str]:
    """The paths of all that is read."""
    return sorted(path for handler in HANDLERS for path in _read(handler))


def _read(handler: HTTPRouteHandler) -> Iterator[str]:
    if "GET" in handler.http_methods:
        yield from handler.paths


def whole() -> list[str]:
    """The pages that stand by themselves, also on an empty store."""
    return [path for path in paths() if "{" not in path and path not in PARTS | _ASKED]


def everywhere() -> list[Where]:
    """Every page, and where on the rich store it is opened."""
    return [*(Where(path, "", _itself(path)) for path in whole()), *OPENED]


def _itself(path: str) -> Callable[[Rich], str]:
    return lambda _: path
