"""A request as a command of curl and as a Python program, to be copied. Both read the key from the environment.

Owns: quoting. Pure. The texts have no character that a terminal or a page shows in another form: such characters are
escaped in the JSON, or in the Python strings. Refuses: the body (`client_body.py`). No key that was ever sent is
recorded, and none is shown.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final

KEY: Final = "HONE_API_KEY"  # the variable that has the key
MOST_CHARS: Final = 30_000  # of the body as JSON: a longer one is not a command that people paste
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class _Sdk:
    """How an SDK sends a format. `named`: the fields that its method has as arguments; others go into `extra_body`."""

    module: str
    client: str
    base_path: str  # of its base URL
    method: str
    named: tuple[str, ...]


_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "stream")
_SDKS: Final = {
    "/v1/chat/completions": _Sdk(
        "openai", "OpenAI", "/v1", "chat.completions.create", ("model", "messages", "tools", "tool_choice", *_SAMPLING)
    ),
    "/v1/completions": _Sdk("openai", "OpenAI", "/v1", "completions.create", ("model", "prompt", *_SAMPLING)),
    "/v1/responses": _Sdk(
        "openai",
        "OpenAI",
        "/v1",
        "responses.create",
        ("model", "instructions", "input", "tools", "tool_choice", "temperature", "top_p", "stream"),
    ),
    "/v1/messages": _Sdk(
        "anthropic",
        "Anthropic",
        "",
        "messages.create",
        ("model", "system", "messages", "tools", "tool_choice", *_SAMPLING),
    ),
}
_ANTHROPIC: Final = "/v1/messages"


def is_short(body: Mapping[str, Any]) -> bool:
    """Whether a body is short enough for a command."""
    return len(json.dumps(body, ensure_ascii=False, default=str)) <= MOST_CHARS


def curl_command(base_url: str, path: str, body: Mapping[str, Any]) -> str:
    """Return a command for a POSIX shell that sends `body` as it is."""
    key = f'"x-api-key: ${KEY}"' if path == _ANTHROPIC else f'"Authorization: Bearer ${KEY}"'
    version = ' -H "anthropic-version: 2023-06-01"' if path == _ANTHROPIC else ""
    return (
        f"curl {shlex.quote(base_url + path)} \\\n"
        f'  -H {key} -H "Content-Type: application/json"{version} \\\n'
        f"  -d {shlex.quote(_json_text(body))}"
    )


def python_program(base_url: str, path: str, body: Mapping[str, Any]) -> str:
    """Return a program that sends `body` with the SDK of its format."""
    sdk = _SDKS[path]
    named = {name: body[name] for name in sdk.named if name in body}
    rest = {name: value for name, value in body.items() if name not in named}
    arguments = named | ({"extra_body": rest} if rest else {})
    lines = [
        "import os",
        "",
        f"from {sdk.module} import {sdk.client}",
        "",
        f'client = {sdk.client}(base_url={base_url + sdk.base_path!r}, api_key=os.environ["{KEY}"])',
        f"answer = client.{sdk.method}(",
        *(f"    {name}={_literal(value)}," for name, value in arguments.items()),
        ")",
        *(["for event in answer:", "    print(event)"] if body.get("stream") else ["print(answer)"]),
    ]
    return "\n".join(lines) + "\n"


def _json_text(body: Mapping[str, Any]) -> str:
    """The body as JSON; a character that is not printable is an escape. Such characters are only in its strings."""
    text = json.dumps(body, ensure_ascii=False, indent=2, default=str)
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _literal(value: object) -> str:
    """A value as Python writes it, on lines of their own where it is long; no string has a line end in it."""
    return pformat(value, width=_WIDTH, sort_dicts=False).replace("\n", "\n    ")
