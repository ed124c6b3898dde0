"""The forms of a message: what a receiver reads, and that it can check who sent it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.notifications.message import MAX_BODY_BYTES, body_of, escape_slack, sign, signed_headers
from proxy.settings.notify import secret_bytes
from recorder.queue.notifications import Notification
from tests.docs.pages import ROOT

PAGE = Path(ROOT) / "docs" / "notifications.md"


def a_notification(**values: Any) -> Notification:
    given: dict[str, Any] = {
        "id": "ntf_1", "kind": "version_live", "what": "helpdesk@4 is live: the gate decided.",
        "link": "/hone/versions/helpdesk@4", "figures": {"win_rate": 0.61}, "at": 1_796_000_000.0, "state": "waiting",
        "omitted": 0, "counted_in": None, "tries": 1, "tried_at": None, "try_after": None, "sent_at": None,
        "error": None,
    }  # fmt: skip
    return Notification(**{**given, **values})


def test_the_form_hone() -> None:
    body = json.loads(body_of(a_notification(omitted=2), "default", "http://h/hone/versions/helpdesk@4", "hone"))
    assert body == {
        "id": "ntf_1",
        "kind": "version_live",
        "what": "helpdesk@4 is live: the gate decided.",
        "when": "2026-11-30T00:53:20Z",
        "project": "default",
        "link": "http://h/hone/versions/helpdesk@4",
        "figures": {"win_rate": 0.61},
        "omitted": 2,
    }


def test_the_form_slack_is_one_text_without_markup_of_ours_in_it() -> None:
    one = a_notification(what="<!channel> a & b", omitted=3)
    body = json.loads(body_of(one, "default", "http://h/hone/?a=1&b=2", "slack"))
    assert body.keys() == {"text"}
    assert "&lt;!channel&gt; a &amp; b" in body["text"]
    assert "<!channel>" not in body["text"]
    assert "win_rate 0.61" in body["text"]
    assert "3 more of this kind" in body["text"]
    assert "<http://h/hone/?a=1&amp;b=2|Open the page>" in body["text"]


@given(st.text())
def test_no_text_can_control_slack(text: str) -> None:
    escaped = escape_slack(text)
    assert not set("<>\n") & set(escaped)
    assert re.sub("&(amp|lt|gt);", "", escaped).count("&") == 0


@given(what=st.text(max_size=5000), figures=st.dictionaries(st.text("abc", max_size=64), st.floats(allow_nan=False)))
def test_a_body_is_bounded(what: str, figures: dict[str, float]) -> None:
    some = dict(list(figures.items())[:20])
    storable = what.encode("utf-8", "replace").decode()
    for form in ("hone", "slack"):
        assert len(body_of(a_notification(what=storable, figures=some), "default", None, form)) <= MAX_BODY_BYTES


def documented_check() -> Any:
    """`is_from_hone` of docs/notifications.md."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["is_from_hone"]


@pytest.mark.parametrize("secret", ["a secret of thirty-two characters", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
def test_the_documented_check_accepts_our_signature_and_no_other(secret: str) -> None:
    is_from_hone = documented_check()
    body = body_of(a_notification(), "default", None, "hone")
    headers = signed_headers("ntf_1", 1_796_000_000, body, secret_bytes(secret))
    assert is_from_hone(headers, body, secret, now=1_796_000_010)
    assert not is_from_hone(headers, body + b" ", secret, now=1_796_000_010)
    assert not is_from_hone(headers, body, "another secret of some length", now=1_796_000_010)
    assert not is_from_hone(headers, body, secret, now=1_796_000_301)
    assert not is_from_hone({**headers, "webhook-id": "ntf_2"}, body, secret, now=1_796_000_010)
    assert not is_from_hone({**headers, "webhook-timestamp": "1796000009"}, body, secret, now=1_796_000_010)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    # the example of the specification's reference libraries
    key = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}', key)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
