"""Changes of settings at run time, for `hone config`: reading them without a running program, making and undoing one.

Owns: when the store is opened, and what is said if it cannot be read. Refuses: what a change is
(`recorder.setting_changes`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recorder.base.terminal import echo
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings, LoadedSettings
    from recorder.setting_changes.follower import SettingsFollower
    from recorder.store.database import Project


def change_setting(context: Context, key: str, value: str | None) -> None:
    """Change a setting; None: undo its change. Raises NotFound, SettingInvalid, Conflict, StoreError."""
    settings = context.settings()

    async def change(project: Project) -> None:
        from recorder.registry.alias_moves import BY_HAND
        from recorder.setting_changes.actions import set_value, undo
        from recorder.setting_changes.follower import SettingsFollower

        follower = SettingsFollower(project, settings)
        if value is None:
            await undo(follower, key, BY_HAND)
        else:
            await set_value(follower, key, value, BY_HAND)

    run(context, change)


def load_with_changes(context: Context) -> LoadedSettings:
    """Return the settings under the changes in the store. Without a store, or if it cannot be read, those of hone.toml,
    variables and flags; a note says so.
    """
    from recorder.errors import StoreError

    loaded = context.loaded()
    if loaded.settings.recorder.url is None and not (loaded.settings.data / "hone.db").exists():
        return loaded
    try:
        follower = run(context, lambda project: _follow_once(project, loaded.settings))
    except StoreError as e:
        echo(f"note: changes at run time are not shown: {e}", err=True)
        return loaded
    from proxy.settings.display import list_leaves
    from recorder.setting_changes.changeable_settings import PAGE

    for key, why in follower.refused.items():
        echo(f"note: the change of {key} at run time does not apply: {why}", err=True)
    origin = {key: loaded.origin.get(key, "default") for key, _ in list_leaves(follower.settings)}
    return replace(loaded, settings=follower.settings, origin=origin | dict.fromkeys(follower.changes, PAGE))


async def _follow_once(project: Project, settings: HoneSettings) -> SettingsFollower:
    from recorder.setting_changes.follower import SettingsFollower

    follower = SettingsFollower(project, settings)
    await follower.refresh()
    return follower
