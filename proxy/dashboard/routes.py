"""The table of pages, mounted at /hone.

Owns: which handlers there are, and what all share: the check of a form's token, headers. Refuses: what any of them does.
"""

from __future__ import annotations

from litestar import Router
from litestar.di import Provide

from proxy.dashboard import drawn, files, forms, sign_in
from proxy.dashboard.pages import group, group_changes, groups, home, moving, run, run_changes, runs, training, versions
from proxy.dashboard.render import with_headers
from proxy.dashboard.shown import Shown

HANDLERS = [
    home.home_page,
    runs.runs_page,
    groups.groups_page,
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
    versions.versions_page,
    versions.version_page,
    moving.ask_page,
    moving.move,
    training.training_page,
    drawn.chart_image,
    sign_in.sign_in_page,
    sign_in.sign_in,
    sign_in.sign_out,
    files.static_file,
]


def pages(shown: Shown) -> Router:
    """All pages, for the app."""
    return Router(
        "/hone",
        route_handlers=HANDLERS,
        dependencies={"shown": Provide(lambda: shown, sync_to_thread=False)},
        before_request=forms.check,
        after_request=with_headers,
        include_in_schema=False,
    )
