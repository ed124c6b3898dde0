"""The table of pages below /hone, and the addresses that pages had before.

Owns: the list of handlers, the redirects of old addresses, and what all pages share: the check of a form's token, and
headers. Refuses: what a page does.
"""

from __future__ import annotations

import re
from typing import Final, cast
from urllib.parse import parse_qsl, urlencode

from litestar import HttpMethod, Response, Router, asgi, route
from litestar.di import Provide
from litestar.handlers import ASGIRouteHandler
from litestar.status_codes import HTTP_308_PERMANENT_REDIRECT
from litestar.types import Receive as LitestarReceive
from litestar.types import Scope as LitestarScope
from litestar.types import Send as LitestarSend

from proxy.api.route_parts import AnyRequest
from proxy.dashboard import chart_images, forms, renderer, sign_in
from proxy.dashboard.live import LiveStream
from proxy.dashboard.pages import (
    ask_again,
    call,
    campaign,
    group,
    lists,
    overviews,
    programs,
    review,
    search,
    selection,
    settings,
    traffic,
    trajectory,
    versions,
)
from proxy.dashboard.renderer import PageContext, add_page_headers
from proxy.errors import UnknownObject
from proxy.http.asgi import Receive, Scope, Send
from proxy.http.shutdown import Shutdown

HANDLERS = [
    overviews.home_page,
    search.search_page,
    traffic.traffic_page,
    traffic.traffic_chart,
    lists.trajectories_page,
    lists.groups_page,
    lists.session_page,
    selection.change_selection,
    selection.save_filter,
    selection.remove_filter,
    trajectory.trajectory_page,
    call.call_page,
    ask_again.ask_page,
    ask_again.ask_again,
    trajectory.give_feedback,
    trajectory.change_tag,
    trajectory.ask_delete,
    trajectory.delete_trajectory,
    group.group_page,
    group.judging_page,
    group.rescore_group,
    group.try_recipe,
    group.note_preference,
    review.review_page,
    review.note_choice,
    versions.versions_page,
    versions.version_page,
    versions.alias_action_page,
    versions.apply_alias_action,
    overviews.training_page,
    campaign.campaign_page,
    campaign.campaign_file,
    campaign.campaign_chart,
    overviews.ask_of_campaign,
    chart_images.chart_image,
    overviews.judge_page,
    overviews.tools_page,
    programs.programs_page,
    programs.log_page,
    programs.log_lines,
    programs.request_job,
    settings.settings_page,
    settings.make_key,
    settings.revoke_key,
    settings.send_test,
    settings.change_setting,
    settings.undo_setting,
    settings.pause_learning,
    sign_in.sign_in_page,
    sign_in.sign_in,
    sign_in.sign_out,
    renderer.static_file,
]
# Old addresses of pages: a path's pattern, and where it moved.
MOVED_PATHS: Final = (
    (re.compile(r"/hone/runs(/.+)?"), r"/hone/trajectories\1"),
    (re.compile(r"/hone/groups/([^/]+)/again"), r"/hone/groups/\1/rescore"),
    (re.compile(r"/hone/charts/lessons\.svg"), r"/hone/charts/outcomes.svg"),
)
# Old names in the queries of pages: the pattern of today's path, the old name, the new one.
MOVED_PARAMS: Final = (
    (re.compile(r"/hone/trajectories"), "said", lists.SEARCH),
    (re.compile(r"/hone/versions/.+"), "beside", "compare"),
)


def moved_address(path: str, query: str) -> str | None:
    """Where the page of an old address is now, as a path with its query; None where the address is not an old one."""
    given = parse_qsl(query, keep_blank_values=True)
    new_path, new_query = path, given
    for pattern, target in MOVED_PATHS:
        if found := pattern.fullmatch(path):
            new_path = found.expand(target)
    for pattern, old, new in MOVED_PARAMS:
        if pattern.fullmatch(new_path):
            new_query = [(new if name == old else name, value) for name, value in new_query]
    if (new_path, new_query) == (path, given):
        return None
    return f"{new_path}?{urlencode(new_query)}" if new_query else new_path


async def redirect_or_check(request: AnyRequest) -> Response[bytes] | None:
    """Before every page: answer 308 to an old address, else check a form's token. Raises Forbidden, WrongMediaType."""
    path = (request.scope.get("raw_path") or request.scope["path"].encode()).decode("latin-1")
    if (moved := moved_address(path, request.scope["query_string"].decode("latin-1"))) is not None:
        return Response(b"", status_code=HTTP_308_PERMANENT_REDIRECT, headers={"location": moved})
    await forms.check_form(request)
    return None


@route(
    ["/runs", "/runs/{rest:path}", "/groups/{group:str}/again"],
    http_method=[HttpMethod.GET, HttpMethod.POST],
    include_in_schema=False,
)
async def old_address(request: AnyRequest) -> None:
    """Make old paths known to the router: `redirect_or_check` answers them."""
    raise UnknownObject(f"there is no page {request.url.path[:200]!r}.")


def page_routes(context: PageContext, stop: Shutdown) -> Router:
    """All pages, for the app."""
    return Router(
        "/hone",
        route_handlers=[*HANDLERS, old_address, _live(LiveStream(context, stop))],
        dependencies={"context": Provide(lambda: context, sync_to_thread=False)},
        before_request=redirect_or_check,
        after_request=add_page_headers,
        include_in_schema=False,
    )


def _live(live: LiveStream) -> ASGIRouteHandler:
    """Return the route of Home's event stream, as raw ASGI: it notices a client's disconnect and a shutdown."""

    async def handler(scope: LitestarScope, receive: LitestarReceive, send: LitestarSend) -> None:
        await live(cast(Scope, scope), cast(Receive, receive), cast(Send, send))

    return asgi("/live", copy_scope=False)(handler)
