"""Whatever JSON a client sends: it is read, or refused as a bad request. Never a fault of ours."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.errors import BadRequest

pytestmark = pytest.mark.slow  # faults, and processes that end: left out of `make check`

WORDS = st.sampled_from(
    [
        "text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking", "tool_reference", "tool_addition",
        "tool_removal", "tool_definition", "document", "user", "assistant", "system", "auto", "any", "tool", "none",
        "enabled", "disabled", "url", "base64", "find", "http://a.example/b", "data:x",
    ]
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "type", "role", "content", "text", "source", "url", "data", "media_type", "id", "name", "input", "tool_use_id",
        "thinking", "tool", "definition", "input_schema", "budget_tokens", "format", "schema", "effort", "tool_name",
        "json_schema", "function", "arguments", "include_usage", "cache_salt",
    ]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)
CHANGES = st.fixed_dictionaries({"type": WORDS, "name": VALUES, "definition": VALUES})
BLOCKS = st.lists(
    st.fixed_dictionaries({"type": WORDS}, optional={"content": VALUES, "tool": VALUES | CHANGES, "id": VALUES})
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": WORDS, "content": BLOCKS | VALUES}), max_size=3)
FIELDS = st.sampled_from(
    [
        "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "max_tokens", "stream", "n",
        "stop_sequences", "stop", "temperature", "top_p", "top_k", "seed", "metadata", "prompt", "logprobs", "suffix",
        "stream_options", "response_format", "return_token_ids", "chat_template_kwargs", "logit_bias", "min_tokens",
    ]
)  # fmt: skip
BODIES = st.dictionaries(FIELDS, VALUES, max_size=6).flatmap(
    lambda fields: st.fixed_dictionaries(
        {"model": st.just("m"), "max_tokens": st.just(9), "prompt": VALUES, "messages": MESSAGES}
    ).map(lambda sound: sound | fields)
)


@pytest.mark.parametrize("path", sorted(DIALECTS))
@given(body=BODIES)
def test_a_body_is_read_or_refused(path: str, body: Any) -> None:
    with contextlib.suppress(BadRequest):
        reading = DIALECTS[path].read(json.dumps(body).encode(), {}, DialectRules())
        assert isinstance(json.loads(reading.engine_body("engine-model")), dict)
        assert all(isinstance(message["role"], str) for message in reading.request.messages)
        assert not reading.answer().finished
