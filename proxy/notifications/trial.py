"""Send a test: one notification of kind `test`, now, for the page Settings, the API and the command.

Refuses: the pace of the other kinds, because a person who corrects an address tries again at once.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Final

from proxy.errors import StateConflict
from proxy.notifications.delivery import post_notification
from proxy.notifications.target import Target
from recorder.errors import StoreError
from recorder.queue.notifications import NoticeKind, Notification, add_sent, new_notification_id
from recorder.states import NotificationState
from recorder.store.database import Project

log = logging.getLogger(__name__)

OFF: Final = (
    "notifications are off: set `url` and `secret` in the [notify] section of hone.toml, and start the proxy again."
)


async def send_trial(project: Project, target: Target | None, who: str) -> Notification:
    """Send a test once, list it, and return it with its outcome. `who` asked. Raises StateConflict without a target."""
    if target is None:
        raise StateConflict(OFF)
    at = time.time()
    one = Notification(
        new_notification_id(), NoticeKind.TEST, f"A test of notifications, sent by {who}.", "/hone/settings", {}, at,
        NotificationState.FAILED, 0, None, 1, at, None, None, None,
    )  # fmt: skip
    outcome = await post_notification(target, project.id, one)
    if outcome.error is None:
        one = replace(one, state=NotificationState.SENT, sent_at=time.time())
    else:
        one = replace(one, error=outcome.error)
    try:
        await add_sent(project, one)
    except StoreError as e:
        log.warning("the test of notifications cannot be listed: %s", e)
    return one
