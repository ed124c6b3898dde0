"""Changing a setting at run time, and undoing the change.

Owns: checking a value before it is stored, and what a change notes. Refuses: who may do it (`proxy.admission.auth`).
"""

from __future__ import annotations

import logging
import math
from typing import Any, Final

from recorder.errors import SettingInvalid
from recorder.setting_changes.change_rows import write_change
from recorder.setting_changes.changeable_settings import PAUSED, setting_path
from recorder.setting_changes.follower import SettingsFollower
from recorder.setting_changes.overlay import change_value, value_at

log = logging.getLogger(__name__)

_MOST: Final = 2**53  # what every reader of JSON has exactly


async def set_value(follower: SettingsFollower, key: str, value: Any, who: str) -> None:
    """Change a setting. A text is read as a variable's is, and an empty one means "not set".

    When this returns, the follower has the change. Raises NotFound, SettingInvalid, Conflict, StoreError.
    """
    setting_path(key)
    await follower.refresh()
    given = None if isinstance(value, str) and not value.strip() else value
    before, changed = value_at(follower.settings, key), change_value(follower.settings, key, given)
    after = value_at(changed, key)
    if isinstance(after, int | float) and not (math.isfinite(after) and abs(after) <= _MOST):
        raise SettingInvalid(f"{key}: the value must be a finite number of at most {_MOST} (got {str(given)[:200]!r})")
    await write_change(follower.project, key, before=before, after=after, who=who)
    log.info("%s was changed from %r to %r by %s", key, before, after, who)
    await follower.refresh()


async def undo(follower: SettingsFollower, key: str, who: str) -> None:
    """Undo the change of a setting: hone.toml, variables and flags hold again.

    When this returns, the follower has it. Raises NotFound, Conflict if there is no change, StoreError.
    """
    setting_path(key)
    await follower.refresh()
    if key in follower.refused:  # its alias is gone, or its value does not fit: it did not hold
        before = after = None
    else:
        before, after = value_at(follower.settings, key), value_at(follower.started_with, key)
    await write_change(follower.project, key, before=before, after=after, who=who, undone=True)
    log.info("the change of %s to %r was undone by %s", key, before, who)
    await follower.refresh()


async def set_paused(follower: SettingsFollower, *, paused: bool, who: str) -> None:
    """Pause learning, or let it go on. Nothing changes if it is so already. Raises Conflict, StoreError."""
    await follower.refresh()
    if follower.learn.paused == paused:
        return
    if PAUSED in follower.changes and follower.started_with.learn.paused == paused:
        await undo(follower, PAUSED, who)
    else:
        await set_value(follower, PAUSED, paused, who)
