"""The list of all `/hone/v1` routes, and the methods of each path.

Owns: the list, the OpenAPI document, and the answers to OPTIONS and for a 405. Refuses: the routes themselves
(`proxy.api.trajectories`, `lists`, `groups`, `versions`, `status`).
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
# Client generators and `scripts.pages.api` read it: a handler's docstring describes its route.
OPENAPI: Final = OpenAPIConfig(
    title="Hone", version="1", use_handler_docstrings=True, render_plugins=[JsonRenderPlugin()]
)


def methods_at(path: str) -> list[str]:
    """Return the methods that a path of these routes has, as a 405 names them in `Allow`."""
    parts = path.rstrip("/").split("/")
    methods = {"OPTIONS"}
    for handler in HANDLERS:
        for template in handler.paths:
            segments = template.split("/")
            if segments[-1].endswith(":path}"):  # a name that may hold slashes: all that is left
                segments += [segments[-1]] * (len(parts) - len(segments))
            if len(segments) == len(parts) and all(
                w == p or w[:1] == "{" for w, p in zip(segments, parts, strict=True)
            ):
                methods |= set(handler.http_methods)
    return sorted(methods)


async def tell_options(request: AnyRequest) -> Response[None] | None:
    """Answer OPTIONS before a handler runs. The framework would name the methods of only one handler."""
    if request.method != "OPTIONS":
        return None
    return Response(None, status_code=204, headers={"allow": ", ".join(methods_at(request.url.path))})
