"""The table of pages, mounted at /hone.

Owns: which handlers there are, and what all share: the check of a form's token, headers. Refuses: what any
of them does.
"""

from __future__ import annotations

from typing import cast

from litestar import Router, asgi
from litestar.di import Provide
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive as LitestarReceive
from litestar.types import Scope as LitestarScope
from litestar.types import Send as LitestarSend

from proxy.dashboard import chart_images, forms, renderer, sign_in
from proxy.dashboard.live import LiveStream
from proxy.dashboard.page_context import PageContext
from proxy.dashboard.pages import group, lists, overviews, review, settings, trajectory, versions
from proxy.dashboard.renderer import add_page_headers
from proxy.http.asgi import Receive, Scope, Send
from proxy.http.shutdown import Shutdown

HANDLERS = [
    overviews.home_page,
    lists.trajectories_page,
    lists.groups_page,
    trajectory.trajectory_page,
    trajectory.call_page,
    trajectory.give_feedback,
    trajectory.change_tag,
    trajectory.ask_delete,
    trajectory.delete_trajectory,
    group.group_page,
    group.judging_page,
    group.rescore_group,
    group.note_preference,
    review.review_page,
    review.note_choice,
    versions.versions_page,
    versions.version_page,
    versions.alias_action_page,
    versions.apply_alias_action,
    overviews.training_page,
    chart_images.chart_image,
    overviews.judge_page,
    overviews.tools_page,
    settings.settings_page,
    settings.make_key,
    settings.revoke_key,
    sign_in.sign_in_page,
    sign_in.sign_in,
    sign_in.sign_out,
    renderer.static_file,
]


def page_routes(shown: PageContext, stop: Shutdown) -> Router:
    """All pages, for the app."""
    return Router(
        "/hone",
        route_handlers=[*HANDLERS, _live(LiveStream(shown, stop))],
        dependencies={"shown": Provide(lambda: shown, sync_to_thread=False)},
        before_request=forms.check_form,
        after_request=add_page_headers,
        include_in_schema=False,
    )


def _live(live: LiveStream) -> ASGIRouteHandler:
    """The stream of the first page: it says when it ends, which the framework's own would not."""

    async def handler(scope: LitestarScope, receive: LitestarReceive, send: LitestarSend) -> None:
        await live(cast(Scope, scope), cast(Receive, receive), cast(Send, send))

    return asgi("/live", copy_scope=False)(handler)
