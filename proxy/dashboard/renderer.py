"""A template filled, as an answer.

Owns: Jinja's environment (autoescape, and an unknown name is an error), what every template is given, the headers of
a page. Refuses: what a page shows.

The stylesheet and the scripts: a few files, read once.

Owns: serving them, with a tag by which a browser asks whether its copy is current. Refuses: any other path.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any, Final

import jinja2
from litestar import Response, get
from litestar.enums import MediaType
from litestar.params import FromPath

from proxy.admission.pages import HEADERS
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import formatters, forms
from proxy.errors import UnknownObject
from recorder.registry.keys import Scope

HERE: Final = Path(__file__).parent
# The navigation: path, name, the key that opens it after `g`.
NAVIGATION: Final = (
    ("/hone/", "Home", "h"),
    ("/hone/runs", "Runs", "r"),
    ("/hone/groups", "Groups", "g"),
    ("/hone/versions", "Versions", "v"),
    ("/hone/training", "Training", "t"),
    ("/hone/judge", "Judge", "j"),
    ("/hone/tools", "Tools", "o"),
    ("/hone/settings", "Settings", "s"),
)


@functools.cache
def template_environment() -> jinja2.Environment:
    """The templates. Everything is escaped, and `|safe` is used nowhere: a test reads them all."""
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


def render_page(request: AnyRequest, template: str, *, status: int = 200, **shown: Any) -> Response[str]:
    """A page. Every template knows besides: `here` (the path), `may` (a scope's name → whether the caller has it),
    `signed_in`, `csrf` (the token that each form sends), `base_url` (of this proxy, for lines to copy)."""
    caller = caller_of(request)
    token, cookie = forms.token_for(request)
    text = (
        template_environment()
        .get_template(template)
        .render(
            **shown,
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
    """An answer of any handler (a way back, a file, a stream) with what of a page's headers it does not say itself."""
    for name, value in page_headers().items():
        answer.headers.setdefault(name, value)
    return answer


_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@functools.cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Name → content, its type, its tag."""
    found = {}
    for path in sorted((HERE / "static").iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            found[path.name] = (content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found


@get("/static/{name:str}", include_in_schema=False)
async def static_file(request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    """One file."""
    if name not in _files():
        raise UnknownObject(f"no file {name[:100]!r} belongs to the pages.")
    content, kind, tag = _files()[name]
    told = page_headers() | {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers=told, media_type=kind)
    return Response(content, headers=told, media_type=kind)
