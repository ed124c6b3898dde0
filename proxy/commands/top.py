"""`hone top`: one live screen with three answers: is it learning, is it healthy, what needs me.

Owns: how the answers look. Refuses: the answers (`recorder.views.status.answers`), and when the screen is drawn
(`proxy.commands.status_view`).
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from recorder.base.terminal import build_table, clean_line
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from proxy.settings.hone import HoneSettings
    from recorder.store.database import Project

_QUESTIONS: Final = {"learning": "Is it learning?", "healthy": "Is it healthy?", "needs": "What needs me?"}
_NOTHING: Final = {"learning": "There is no alias yet.", "healthy": "", "needs": "Nothing."}
_STYLES: Final = {"good": "green", "open": "", "bad": "red"}


@click.command()
@click.pass_obj
def top(context: Context) -> None:
    """Show whether it is learning, whether it is healthy and what needs you, live, until Ctrl-C.

    With --json, a line of JSON at each change.
    """
    from proxy.commands.status_view import open_live_view, watch_view

    settings = context.settings()
    with contextlib.suppress(KeyboardInterrupt), open_live_view(None if context.json else draw_answers) as show:
        run(
            context,
            lambda project: watch_view(project.store, partial(_read, project, settings), show),
        )


async def _read(project: Project, settings: HoneSettings) -> dict[str, Any]:
    from proxy.commands.status_view import KILLED
    from proxy.programs.run_file import find_stale_run
    from recorder.setting_changes.follower import SettingsFollower
    from recorder.views.status.answers import load_answered_status
    from recorder.views.status.stages import LoopSettings

    follower = SettingsFollower(project, settings)
    await follower.refresh()
    answers = asdict((await load_answered_status(project, LoopSettings.current(follower))).answers)
    if find_stale_run(settings.data):
        killed = {"about": "hone up", "outlook": "bad", "text": KILLED, "link": "/hone/"}
        answers["needs"] = [killed, *answers["needs"]]
    return answers


def draw_answers(answers: dict[str, Any]) -> RenderableType:
    """Return the screen: each question with its lines, in colour."""
    rows: list[list[Text]] = []
    for name, question in _QUESTIONS.items():
        rows.append([clean_line(question, "bold"), clean_line("")])
        lines = answers[name] or ([{"about": "", "outlook": "good", "text": _NOTHING[name]}] if _NOTHING[name] else [])
        rows += [[clean_line(f"  {one['about']}", _STYLES[one["outlook"]]), clean_line(one["text"])] for one in lines]
    return build_table(("", ""), rows, headed=False)
