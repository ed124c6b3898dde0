"""The forms of a notification and its signature. Pure.

Owns: the JSON of the form `hone`, the text of the form `slack`, and the headers of Standard Webhooks
(https://www.standardwebhooks.com): `webhook-id`, `webhook-timestamp` and `webhook-signature`, which is `v1,` and the
base64 of the HMAC-SHA256 of `ID.TIMESTAMP.BODY`. Refuses: sending.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from proxy.settings.notify import Form
from recorder.queue.notifications import Notification

MAX_BODY_BYTES: Final = 16_384
_MAX_WHAT_CHARS: Final = 1000
_MAX_FIGURES: Final = 6  # in a line of Slack


def body_of(one: Notification, project: str, link: str | None, form: Form) -> bytes:
    """Return the body in a form: JSON in UTF-8. `link`: the address of the page, if there are pages."""
    shown = _slack(one, project, link) if form == "slack" else _hone(one, project, link)
    body = orjson.dumps(shown)
    assert len(body) <= MAX_BODY_BYTES
    return body


def signed_headers(message_id: str, at: int, body: bytes, key: bytes | None) -> dict[str, str]:
    """Return the headers of a message, signed with a key if there is one. `at`: when it is sent, in unix seconds."""
    headers = {"content-type": "application/json", "webhook-id": message_id, "webhook-timestamp": str(at)}
    if key is not None:
        headers["webhook-signature"] = sign(message_id, at, body, key)
    return headers


def sign(message_id: str, at: int, body: bytes, key: bytes) -> str:
    """Return the signature of a message by the scheme of Standard Webhooks."""
    signed = b".".join((message_id.encode(), str(at).encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def _hone(one: Notification, project: str, link: str | None) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "what": one.what[:_MAX_WHAT_CHARS],
        "when": _iso(one.at),
        "project": project,
        "link": link,
        "figures": dict(one.figures),
        "omitted": one.omitted,
    }


def _slack(one: Notification, project: str, link: str | None) -> dict[str, str]:
    parts = [f"*{one.kind}* · {escape_slack(project)}\n{escape_slack(one.what[:_MAX_WHAT_CHARS])}"]
    figures = [f"{escape_slack(name)} {value:.4g}" for name, value in list(one.figures.items())[:_MAX_FIGURES]]
    if figures:
        parts.append(", ".join(figures))
    if one.omitted:
        parts.append(f"{one.omitted} more of this kind since the last message.")
    if link is not None:
        parts.append(f"<{escape_slack(link)}|Open the page>")
    return {"text": "\n".join(parts)}


def escape_slack(text: str) -> str:
    """Return text without markup for Slack: its three control characters as entities, and no line break."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
