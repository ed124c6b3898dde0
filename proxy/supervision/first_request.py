"""What to do with a proxy that is ready: its base_url, its pages, and a request to try it with.

Owns: these lines, for `hone up` and `hone serve`. A key is never shown: with keys, the request has a placeholder.
"""

from __future__ import annotations

import json
import shlex
from typing import Final

from proxy.engine.command import url_host

KEY_PLACEHOLDER: Final = "$HONE_KEY"


def local_url(host: str, port: int) -> str:
    """Return the URL, without /v1, at which this machine reaches a proxy that listens on `host`."""
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else url_host(host)}:{port}"  # noqa: S104


def describe_ready(url: str, model: str, *, pages: bool, with_key: bool) -> list[str]:
    """Return the lines for a proxy at `url` (without /v1) that serves `model`."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]}, ensure_ascii=False)
    key = f'-H "Authorization: Bearer {KEY_PLACEHOLDER}" ' if with_key else ""
    lines = [f"base_url  {url}/v1"]
    if pages:
        lines.append(f"pages     {url}/hone/")
    lines.append(
        f"try it    curl {url}/v1/chat/completions {key}-H 'content-type: application/json' -d {shlex.quote(body)}"
    )
    return lines
