"""Hone's own routes, `/hone/v1/…`, together: which there are, and which methods a path is served with.

Owns: the list, what /schema says of it, and what OPTIONS and a 405 tell. Refuses: what the routes do
(`proxy.api.trajectories`, `groups`, `versions`, `training`); model traffic.
(`proxy.api.trajectories`, `groups`, `versions`, `standing`); model traffic.
"""

from __future__ import annotations

from typing import Final

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from proxy.api import groups, lists, status, trajectories, versions
from proxy.api.route_parts import AnyRequest

HANDLERS: list[HTTPRouteHandler] = [
    trajectories.create_trajectory,
    trajectories.end_trajectory,
    trajectories.end_addressed_trajectory,
    trajectories.note_feedback,
    trajectories.note_addressed_feedback,
    lists.show_trajectories,
    lists.show_groups,
    groups.close_group,
    trajectories.delete_trajectory,
    trajectories.show_trajectory,
    trajectories.show_call,
    groups.show_group,
    groups.compare_group,
    groups.show_judging,
    groups.show_review,
    versions.show_aliases,
    versions.show_versions,
    versions.show_moves,
    versions.show_version,
    versions.show_steps,
    versions.show_training,
    status.show_status,
    status.show_judge,
    status.show_tools,
    status.show_settings,
    status.show_keys,
]
# Read by clients' generators and by `scripts.pages.api`: the docstring of a handler is what its route does.
OPENAPI: Final = OpenAPIConfig(
    title="Hone", version="1", use_handler_docstrings=True, render_plugins=[JsonRenderPlugin()]
)


def methods_at(path: str) -> list[str]:
    """The methods that a path of these routes is served with; what a 405 tells in `Allow`."""
    parts = path.rstrip("/").split("/")
    found = {"OPTIONS"}
    for handler in HANDLERS:
        for template in handler.paths:
            wanted = template.split("/")
            if wanted[-1].endswith(":path}"):  # a name that may hold slashes: all that is left
                wanted += [wanted[-1]] * (len(parts) - len(wanted))
            if len(wanted) == len(parts) and all(w == p or w[:1] == "{" for w, p in zip(wanted, parts, strict=True)):
                found |= set(handler.http_methods)
    return sorted(found)


async def tell_options(request: AnyRequest) -> Response[None] | None:
    """Before a request: what may be done at a path. The framework would name the methods of one handler alone."""
    if request.method != "OPTIONS":
        return None
    return Response(None, status_code=204, headers={"allow": ", ".join(methods_at(request.url.path))})
