"""The stylesheet and the scripts: a few files, read once.

Owns: serving them, with a tag by which a browser asks whether its copy is current. Refuses: any other path.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Final

from litestar import Response, get
from litestar.params import FromPath

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.render import HERE, headers
from proxy.errors import Missing

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
        raise Missing(f"no file {name[:100]!r} belongs to the pages.")
    content, kind, tag = _files()[name]
    told = headers() | {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers=told, media_type=kind)
    return Response(content, headers=told, media_type=kind)
