"""The page of request fields says what the readers of the formats do: every field is tried in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS, engine_fields
from proxy.dialects.base import DialectRules
from proxy.dialects.responses.fields import REFUSED as REFUSED_IN_RESPONSES
from proxy.errors import BadRequest
from scripts.pages.request_fields import ENGINE_MODEL, PAGE, SMALLEST, WHY, set_fields

TEXT = PAGE.read_text("utf-8")


def engine_body(path: str, **more: Any) -> dict[str, Any]:
    sent = {"model": "helpdesk", **SMALLEST[path], **more}
    reading = DIALECTS[path].read(json.dumps(sent).encode(), {}, DialectRules())
    body: dict[str, Any] = json.loads(reading.engine_body(ENGINE_MODEL))
    return body


def test_every_format_is_on_the_page() -> None:
    assert SMALLEST.keys() == DIALECTS.keys()
    for path in DIALECTS:
        assert f"`{path}`" in TEXT or f"| {path} |" in TEXT


@pytest.mark.parametrize("path", SMALLEST)
@pytest.mark.parametrize("name", engine_fields.REFUSED)
def test_a_refused_field_is_refused_in_every_format(path: str, name: str) -> None:
    tried: list[dict[str, Any]] = [{name: 1}, *({outer: {name: 1}} for outer in engine_fields.NESTED)]
    for fields in tried:
        with pytest.raises(BadRequest, match=f"{name}' is not accepted: ") as raised:
            engine_body(path, **fields)
        assert (raised.value.param or "").rpartition(".")[2] == name
    assert f"| `{name}` | {engine_fields.REFUSED[name]} |" in TEXT


@pytest.mark.parametrize("name", REFUSED_IN_RESPONSES)
def test_a_field_that_responses_refuses_is_on_the_page(name: str) -> None:
    with pytest.raises(BadRequest, match=f"{name}' is not served"):
        engine_body("/v1/responses", **{name: {"a": "b"}})
    assert f"| `{name}` |" in TEXT


@pytest.mark.parametrize("name", engine_fields.INTEGERS)
def test_a_value_beyond_its_bounds_is_refused(name: str) -> None:
    least, most = engine_fields.INTEGERS[name]
    with pytest.raises(BadRequest, match=f"whole number from {least} to {most}"):
        engine_body("/v1/chat/completions", **{name: most + 1, "logprobs": True})
    assert f"| `{name}` | {least} | {most} |" in TEXT


@pytest.mark.parametrize("path", SMALLEST)
def test_a_field_that_hone_sets_is_on_the_page_and_set_whatever_the_client_sent(path: str) -> None:
    of = path if path == "/v1/completions" else "/v1/chat/completions"
    listed = set_fields(of)
    for name, value in listed.items():
        assert f"| `{name}` |" in TEXT
        assert name in WHY or value == engine_fields.NEUTRAL[name]
        if path == of or name != "stream_options":
            assert engine_body(path, stream=True).get(name) == value
    if path == of:
        against = {"return_token_ids": False, "model": "other"} | ({"include_reasoning": False} if "chat" in of else {})
        body = engine_body(path, stream=True, stream_options={"include_usage": False}, **against)
        assert {name: body[name] for name in ("model", "return_token_ids", "stream_options")} == {
            "model": ENGINE_MODEL,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }
        assert body.get("include_reasoning", True) is True
