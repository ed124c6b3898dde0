"""Rendering templates, the headers of a page, static files, and the context that every page handler gets.

Owns: Jinja's environment (autoescape; an unknown name is an error), the values that every template gets, the ETags of
static files, and `PageContext`. Refuses: the content of a page.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jinja2
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.enums import MediaType
from litestar.params import FromPath

from proxy.admission.pages import HEADERS, LoginThrottle
from proxy.api.actions import HoneActions
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.api.status import StatusService
from proxy.dashboard import formatters, forms
from proxy.dashboard.chart_drawer import ChartDrawer
from proxy.dashboard.report_cache import ReportCache
from proxy.errors import UnknownObject
from proxy.programs.service import ProgramService
from recorder.registry.keys import Scope
from recorder.report import page as report_page
from recorder.store.database import Project

HERE: Final = Path(__file__).parent
# The navigation: path, name, and the key that opens the page after `g`.
NAVIGATION: Final = (
    ("/hone/", "Home", "h"),
    ("/hone/traffic", "Traffic", "f"),
    ("/hone/trajectories", "Trajectories", "r"),
    ("/hone/groups", "Groups", "g"),
    ("/hone/versions", "Versions", "v"),
    ("/hone/training", "Training", "t"),
    ("/hone/judge", "Judge", "j"),
    ("/hone/tools", "Tools", "o"),
    ("/hone/settings", "Settings", "s"),
)


@functools.cache
def template_environment() -> jinja2.Environment:
    """The environment of the templates. Everything is escaped; a test asserts that no template uses `|safe`."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(formatters.FILTERS)
    made.globals.update(navigation=NAVIGATION)
    return made


def render_page(request: AnyRequest, template: str, *, status: int = 200, **values: Any) -> Response[str]:
    """A page of a template and its values. Every template also gets `here` (the path), `query`, `may` (scope → whether
    the caller has it), `signed_in`, `csrf` (the token of its forms) and `base_url` (of this proxy)."""
    caller = caller_of(request)
    token, cookie = forms.token_for(request)
    text = (
        template_environment()
        .get_template(template)
        .render(
            **values,
            here=request.url.path,
            query=request.url.query,
            may=lambda scope: caller.may(Scope(scope)),
            signed_in=caller.key is not None,
            csrf=token,
            base_url=str(request.base_url).rstrip("/"),
        )
    )
    return Response(
        text, status_code=status, media_type=MediaType.HTML, headers=page_headers(), cookies=[cookie] if cookie else []
    )


def page_headers() -> dict[str, str]:
    """The headers of every page."""
    return {name.decode(): value.decode() for name, value in HEADERS}


def add_page_headers(answer: Response[Any]) -> Response[Any]:
    """Add the headers of a page to any answer (redirect, file, stream); its own headers win."""
    for name, value in page_headers().items():
        answer.headers.setdefault(name, value)
    return answer


_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@functools.cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Name → content, its type, its tag."""
    files = {}
    for path in (*sorted((HERE / "static").iterdir()), report_page.HERE / report_page.RESULTS_SHEET):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            files[path.name] = (content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return files


@get("/static/{name:str}", include_in_schema=False)
async def static_file(request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    """A stylesheet, script or icon. Raises UnknownObject."""
    if name not in _files():
        raise UnknownObject(f"there is no static file {name[:100]!r}.")
    content, kind, tag = _files()[name]
    headers = page_headers() | {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers=headers, media_type=kind)
    return Response(content, headers=headers, media_type=kind)


@dataclass(frozen=True, slots=True)
class PageContext:
    """What page handlers work with."""

    hone: HoneActions  # changes go through it
    project: Project  # read-only connections of the pages, with a query time limit
    status_service: StatusService  # status of the project and of this process
    drawer: ChartDrawer  # its creator closes it
    programs: ProgramService
    reports: ReportCache
    login_throttle: LoginThrottle = field(default_factory=LoginThrottle)


ForPages = NamedDependency[PageContext]
