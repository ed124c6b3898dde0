"""The list of all `/hone/v1` routes, and the methods of each path.

Owns: the list, the OpenAPI document, and the answers to OPTIONS and for a 405. Refuses: the routes themselves
(`proxy.api.trajectories`, `calls`, `lists`, `groups`, `curation`, `versions`, `traffic`, `charts`, `status`,
`programs`, `notifications`).
"""

from __future__ import annotations

from typing import Final

import orjson
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from proxy.api import (
    calls,
    charts,
    groups,
    lists,
    notifications,
    programs,
    status,
    traffic,
    trajectories,
    versions,
)
from proxy.api.curation import datasets, saved_filters, selection
from proxy.api.route_parts import AnyRequest
from proxy.errors import BadRequest, TooLarge
from recorder.base.json_limits import count_values, is_deeper

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
    calls.ask_again,
    selection.change_selection,
    datasets.show_datasets,
    datasets.create_dataset,
    datasets.show_dataset,
    datasets.change_dataset,
    datasets.delete_dataset,
    saved_filters.show_filters,
    saved_filters.save_filter,
    saved_filters.remove_filter,
    groups.show_group,
    groups.compare_group,
    groups.show_judging,
    groups.show_review,
    versions.show_aliases,
    versions.show_versions,
    versions.show_moves,
    versions.show_version,
    versions.show_steps,
    versions.show_report,
    versions.show_training,
    versions.pause_campaign,
    versions.end_campaign,
    traffic.show_traffic,
    charts.show_version_charts,
    charts.show_step_charts,
    charts.show_outcome_charts,
    charts.show_campaign_charts,
    charts.show_traffic_charts,
    status.show_status,
    status.show_judge,
    status.show_tools,
    status.show_settings,
    status.show_setting_changes,
    status.change_setting,
    status.undo_setting,
    status.show_keys,
    programs.show_programs,
    programs.show_log,
    programs.request_job,
    programs.request_trial,
    notifications.show_notifications,
    notifications.send_test,
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


MAX_BODY_BYTES: Final = 1 << 20  # of a request to the API or a page: the largest is a corrected answer
_MAX_BODY_VALUES: Final = 20_000  # parsed in a few milliseconds
_MAX_DEPTH: Final = 200


async def check_request(request: AnyRequest) -> Response[None] | None:
    """Refuse a body that takes long to parse, and answer OPTIONS, before a handler runs. Raises TooLarge, BadRequest.

    The framework would name the methods of only one handler.
    """
    if request.method in ("POST", "PUT", "PATCH"):
        _require_small(await request.body())
    if request.method != "OPTIONS":
        return None
    return Response(None, status_code=204, headers={"allow": ", ".join(methods_at(request.url.path))})


def _require_small(body: bytes) -> None:
    if count_values(body, _MAX_BODY_VALUES) > _MAX_BODY_VALUES:
        raise TooLarge(f"the body has more than {_MAX_BODY_VALUES} values: send a smaller one.")
    if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:  # the framework's parser would recurse
        try:
            is_deep = is_deeper(orjson.loads(body), _MAX_DEPTH)
        except orjson.JSONDecodeError as e:
            raise BadRequest(f"the body is not JSON, or nested too deeply: {e}.", code="invalid_json") from e
        if is_deep:
            raise BadRequest(f"the body is nested too deeply: the limit is {_MAX_DEPTH} levels of lists and objects.")
