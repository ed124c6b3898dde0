"""docs/request-fields.md: every request field that Hone refuses or sets, from the tables and readers of the formats.

Owns: the page's text, and why Hone sets a field. Refuses: which fields these are (`proxy.dialects`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proxy.dialects import DIALECTS, engine_fields
from proxy.dialects.base import DialectRules
from proxy.dialects.messages.fields import PASSED
from proxy.dialects.responses.fields import REFUSED as REFUSED_IN_RESPONSES
from scripts.pages.table import code, table

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "request-fields.md"
ENGINE_MODEL: Final = "helpdesk@3"
# The smallest request of each format.
SMALLEST: Final[Mapping[str, dict[str, Any]]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16},
    "/v1/responses": {"input": "Hi"},
}
# Why Hone sets a field of the engine's request.
WHY: Final[Mapping[str, str]] = {
    "model": "the engine's own name of the version that answers; the answer has the name that you sent",
    "return_token_ids": "Hone records every token; you get the ids only if you asked for them",
    "logprobs": "Hone records the logprob of every token; you get them only if you asked for them",
    "top_logprobs": "a missing number becomes 0, which the engine needs beside `logprobs`",
    "include_reasoning": "without it the engine hides ids and logprobs; Hone hides the reasoning from you instead",
    "stream_options": "`include_usage` is added to a stream, for the record; you get it only if you asked for it",
    "max_tokens": "OpenAI's default where the field is missing",
}
_NEUTRAL: Final = (
    'sent where the field is missing, so that no default of the model applies (`proxy.defaults = "engine"` ends it)'
)
_HEAD = """\
# Request fields that Hone refuses or sets

**For:** people whose request was refused, or whose answer differs from the engine's. **You will have:** every such
field, in each of the four formats, with the reason.

Hone passes all other fields on. `/v1/messages` and `/v1/responses` are translated into chat completions first.
"""
_REFUSED = """
## Refused in every format

A request with one of these fields is answered with 400, and the error names the field. `null` and `false` are accepted,
and so is a `priority` of 0. They are also refused inside {nested}.
"""
_RESPONSES = """
## Also refused in `/v1/responses`

Beside these, `truncation` must be `"disabled"`, and a `background` response is neither streamed nor has
`store = false`.
"""
_MESSAGES = """
## Read in `/v1/messages`

Beside Anthropic's own fields, Hone reads these of vLLM's: {passed}. It drops any other field, and
`mcp_servers`; the call's record names what was dropped.
"""
_BOUNDS = """
## Bounds

A value beyond its bounds is refused with 400.
"""
_MEDIA = """
Media are refused unless they are `data:` URLs, or their host is in `proxy.allowed_media_hosts`. So is embedded media
(`image_embeds`, `audio_embeds`, `video_embeds`), and a body that is nested some 200 levels deep.
"""
_SET = """
## Set by Hone

The engine gets these fields beside the client's, or in place of them; the last column says when.
`/v1/messages` and `/v1/responses` get those of chat completions.
"""
_SETTINGS = """
Settings change more of a request: `proxy.strict_tools` and `proxy.forced_tools` = `"plain"` offer tools without a
grammar, and `[aliases.NAME.sampling] override` replaces sampling values. The call's record says so
([settings](settings.md)).
"""


def set_fields(path: str) -> dict[str, Any]:
    """Return the fields, with their values, that the engine gets of a format's smallest streamed request beside those.

    A client's request sets none of them, except `model` and `stream`.
    """
    sent = {"model": "helpdesk", "stream": True, **SMALLEST[path]}
    reading = DIALECTS[path].read(json.dumps(sent).encode(), {}, DialectRules())
    engine = json.loads(reading.engine_body(ENGINE_MODEL))
    return {name: value for name, value in engine.items() if sent.get(name) != value}


def page() -> str:
    """Return the whole page."""
    passed = ", ".join(code(name) for name in PASSED)
    nested = ", ".join(code(name) for name in engine_fields.NESTED)
    refused = [[code(name), why] for name, why in engine_fields.REFUSED.items()]
    of_responses = [[code(name), why] for name, why in REFUSED_IN_RESPONSES.items()]
    bounds = [[code(name), str(least), str(most)] for name, (least, most) in engine_fields.INTEGERS.items()]
    formats = ("/v1/chat/completions", "/v1/completions")
    found = {path: set_fields(path) for path in formats}
    names = dict.fromkeys(name for of in found.values() for name in of)
    rows = [[code(name), *(_value(name, found[path]) for path in formats), WHY.get(name, _NEUTRAL)] for name in names]
    made = "\n(Made from the tables in `proxy/dialects` by `python -m scripts.pages --write`.)\n"
    return "".join(
        [
            _HEAD,
            _REFUSED.format(nested=nested), "\n", table(["field", "why"], refused),
            _RESPONSES, "\n", table(["field", "why"], of_responses),
            _MESSAGES.format(passed=passed),
            _BOUNDS, "\n", table(["field", "at least", "at most"], bounds), _MEDIA,
            _SET, "\n", table(["field", *formats, "why"], rows), _SETTINGS,
            made,
        ]
    )  # fmt: skip


def _value(name: str, fields: Mapping[str, Any]) -> str:
    if name not in fields:
        return "as sent"
    return "the version's name" if name == "model" else code(json.dumps(fields[name]))
