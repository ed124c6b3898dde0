"""The table of pages, mounted at /hone.

Owns: which handlers there are, and what all share: the check of a form's token. Refuses: what any of them does.
"""

from __future__ import annotations

from litestar import Router
from litestar.di import Provide

from proxy.dashboard import drawn, files, forms, sign_in
from proxy.dashboard.pages import home, moving, training, versions
from proxy.dashboard.shown import Shown

HANDLERS = [
    home.home_page,
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
        include_in_schema=False,
    )
