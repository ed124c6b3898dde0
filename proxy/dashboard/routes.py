"""The table of pages, mounted at /hone.

Owns: which handlers there are, and what all share: the check of a form's token, headers. Refuses: what any of them does.
"""

from __future__ import annotations

from litestar import Router
from litestar.di import Provide

from proxy.dashboard import files, forms, sign_in
from proxy.dashboard.pages import home
from proxy.dashboard.render import with_headers
from proxy.dashboard.shown import Shown

HANDLERS = [
    home.home_page,
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
