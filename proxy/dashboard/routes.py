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

from proxy.dashboard import drawn, files, forms, sign_in
from proxy.dashboard.live import Live
from proxy.dashboard.pages import (
    group,
    group_changes,
    home,
    in_force,
    judge,
    lists,
    moving,
    review,
    run,
    run_changes,
    tools,
    training,
    versions,
)
from proxy.dashboard.render import with_headers
from proxy.dashboard.shown import Shown
from proxy.http.asgi import Receive, Scope, Send
from proxy.http.stopping import Stop

HANDLERS = [
    home.home_page,
    lists.runs_page,
    lists.groups_page,
    run.run_page,
    run.call_page,
    run_changes.give_feedback,
    run_changes.change_tag,
    run_changes.ask_delete,
    run_changes.delete_run,
    group.group_page,
    group.judging_page,
    group_changes.score_anew,
    group_changes.note_preference,
    review.review_page,
    review.note_choice,
    versions.versions_page,
    versions.version_page,
    moving.ask_page,
    moving.move,
    training.training_page,
    drawn.chart_image,
    judge.judge_page,
    tools.tools_page,
    in_force.settings_page,
    in_force.make_key,
    in_force.revoke_key,
    sign_in.sign_in_page,
    sign_in.sign_in,
    sign_in.sign_out,
    files.static_file,
]


def pages(shown: Shown, stop: Stop) -> Router:
    """All pages, for the app."""
    return Router(
        "/hone",
        route_handlers=[*HANDLERS, _live(Live(shown, stop))],
        dependencies={"shown": Provide(lambda: shown, sync_to_thread=False)},
        before_request=forms.check,
        after_request=with_headers,
        include_in_schema=False,
    )


def _live(live: Live) -> ASGIRouteHandler:
    """The stream of the first page: it says when it ends, which the framework's own would not."""

    async def handler(scope: LitestarScope, receive: LitestarReceive, send: LitestarSend) -> None:
        await live(cast(Scope, scope), cast(Receive, receive), cast(Send, send))

    return asgi("/live", copy_scope=False)(handler)
