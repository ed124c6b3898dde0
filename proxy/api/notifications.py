"""Notifications in /hone/v1: those that were sent, failed or wait, and sending a test.

Refuses: what is told (`recorder.views.notices`), and the address, which no route shows.
"""

from __future__ import annotations

from litestar import Response, get, post

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from proxy.notifications.trial import send_trial
from recorder.queue.notifications import Notification, list_notifications


@get("/hone/v1/notifications", responses=response_spec(200, list[Notification]))
async def show_notifications(hone: Injected) -> Response[bytes]:
    """Return the newest fifty notifications, newest first: what was sent, what failed and why, and what waits."""
    return json_response(await list_notifications(hone.project))


@post("/hone/v1/notifications/test", status_code=200, responses=response_spec(200, Notification))
async def send_test(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """Send a test to `notify.url`, and return its outcome: `sent`, or `failed` with the error."""
    return json_response(await send_trial(hone.project, hone.target, caller_id(caller_of(request))))
