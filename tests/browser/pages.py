"""Every page there is, by the table of pages, and where on the rich store each is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from litestar.handlers import HTTPRouteHandler

from proxy.dashboard.routes import HANDLERS
from tests.browser.rich import Rich

# Path of a handler → where it is opened. What has no parameter is opened as it is.
OPENED: Final[Mapping[str, Callable[[Rich], str]]] = {}
# What is no page: part of one, or a file.
PARTS: Final = frozenset({"/static/{name:str}"})


def paths() -> list[str]:
    """The paths of all that is read."""
    return sorted(path for handler in HANDLERS for path in _read(handler))


def _read(handler: HTTPRouteHandler) -> Iterator[str]:
    if "GET" in handler.http_methods:
        yield from handler.paths


def whole() -> list[str]:
    """The pages that stand by themselves, also on an empty store."""
    return [path for path in paths() if "{" not in path and path not in PARTS]


def of_something() -> list[str]:
    """The pages of one thing: a run, a group, a version."""
    return [path for path in paths() if "{" in path and path not in PARTS]


def opened(path: str, rich: Rich) -> str:
    """Where a page is opened on the rich store."""
    return "/hone" + (OPENED[path](rich) if "{" in path else path)
