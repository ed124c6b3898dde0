"""A Messages request becomes the chat completion that the engine's own `/v1/messages` would make of it.

The engine renders both by one template, so equal requests are equal prompts, for every model. The oracle is the
engine's own class; no server runs here.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.messages.fields import to_chat
from tests.e2e.corpus import CORPUS, MESSAGES, Case
from tests.effort import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TEXT = st.text(max_size=5) | st.just("x-anthropic-billing-header: a=1;")
VALUES = st.none() | st.booleans() | st.integers(-9, 9) | TEXT
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES | st.lists(VALUES, max_size=2), max_size=2)
IDS = st.sampled_from(["toolu_1", "chatcmpl-tool-2"])
NAMES = st.sampled_from(["find_order", "track_parcel"])

TEXTS = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}, optional={"cache_control": OBJECTS})
SOURCES = st.fixed_dictionaries(
    {"type": st.just("base64"), "data": st.just("QUJD")}, optional={"media_type": st.just("image/png")}
) | st.fixed_dictionaries({"type": st.just("url"), "url": st.just("https://a.example/b.png")})
IMAGES = st.fixed_dictionaries({"type": st.just("image"), "source": SOURCES})
REFERENCES = st.fixed_dictionaries({"type": st.just("tool_reference"), "tool_name": NAMES})
RESULTS = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "tool_use_id": IDS},
    optional={"content": TEXT | st.lists(TEXTS | IMAGES | REFERENCES, max_size=3), "is_error": st.booleans()},
)
USES = st.fixed_dictionaries({"type": st.just("tool_use"), "id": IDS, "name": NAMES, "input": OBJECTS})
THOUGHTS = st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXT, "signature": TEXT})
REDACTED = st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": TEXT})


def turn(role: str, blocks: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), "content": TEXT | st.lists(blocks, max_size=4)})


TURNS = (
    turn("user", TEXTS | IMAGES | RESULTS)
    | turn("assistant", TEXTS | USES | THOUGHTS | REDACTED)
    | turn("system", TEXTS)
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "input_schema": OBJECTS},
        optional={"description": TEXT, "strict": st.booleans(), "defer_loading": st.booleans()},
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda tool: str(tool["name"]),
)
CHOICES = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["auto", "any", "none"])}, optional={"disable_parallel_tool_use": st.booleans()}
    ),
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.just("m"), "max_tokens": st.integers(2000, 3000), "messages": st.lists(TURNS, max_size=5)},
    optional={
        "system": TEXT | st.lists(TEXTS, max_size=3),
        "tools": TOOLS,
        "tool_choice": CHOICES,
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.1, 1),
        "top_k": st.integers(1, 9),
        "stop_sequences": st.lists(st.text(min_size=1, max_size=3), max_size=3),
        "stream": st.booleans(),
        "thinking": st.sampled_from(
            [{"type": "disabled"}, {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}]
        ),
        "output_config": st.sampled_from(
            [{"effort": "low"}, {"format": {"type": "json_schema", "schema": {"type": "object"}}}]
        ),
        "chat_template_kwargs": OBJECTS,
    },
)


@dataclass(frozen=True)
class Engine:
    """The engine's own classes."""

    messages: Any  # AnthropicMessagesRequest
    serving: Any  # AnthropicServingMessages
    chat: Any  # ChatCompletionRequest

    def wanted(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What the engine's own route asks for."""
        return _told(self.serving.to_chat_completion_request(self.messages(**fields)))

    def asked(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What Hone asks for."""
        return _told(self.chat(**to_chat(fields)))


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Imported here alone: it takes seconds, and warns of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        protocol = importlib.import_module("vllm.entrypoints.anthropic.protocol")
        serving = importlib.import_module("vllm.entrypoints.anthropic.serving")
        chat = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
    return Engine(protocol.AnthropicMessagesRequest, serving.AnthropicServingMessages, chat.ChatCompletionRequest)


def _told(request: Any) -> dict[str, Any]:
    """A chat request as the engine understands it. It tells the longest answer twice there, and once here."""
    said: dict[str, Any] = request.model_dump(exclude={"request_id", "messages"})
    limits = {said.pop("max_completion_tokens"), said.pop("max_tokens")}
    said |= {"limits": limits - {None}, "stop": said["stop"] or []}
    said["messages"] = [_message(message) for message in request.messages]
    if not request.tools:  # without tools a choice of them says nothing
        said |= {"tools": None, "tool_choice": None, "parallel_tool_calls": None}
    return said


def _message(message: Any) -> dict[str, Any]:
    """A message without what no template shows: the mark of a failed tool, an absent content."""
    said = dict(message)
    said.pop("is_error", None)
    if said.get("tool_calls") is not None:
        said["tool_calls"] = [dict(call) for call in said["tool_calls"]]
    return {name: value for name, value in said.items() if value is not None}


@pytest.mark.parametrize("case", [case for case in CORPUS if case.route == MESSAGES], ids=lambda case: str(case.name))
def test_the_corpus_is_asked_as_the_engine_asks_itself(engine: Engine, case: Case) -> None:
    fields = {"model": "m", **case.body}
    assert engine.asked(fields) == engine.wanted(fields)


@settings(max_examples=scaled(500))
@given(fields=REQUESTS)
def test_any_request_is_asked_as_the_engine_asks_itself(engine: Engine, fields: dict[str, Any]) -> None:
    assert engine.asked(fields) == engine.wanted(fields)
