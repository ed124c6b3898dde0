"""What a provider is asked of a body that was made for the engine, and its answer in the engine's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.base import DialectRules
from proxy.dialects.chat import ChatDialect
from proxy.dialects.engine_fields import NEUTRAL
from proxy.engine import provider_fields
from proxy.errors import BadRequest

MESSAGES = [{"role": "user", "content": "Where?"}]


def arguments(sent: Mapping[str, Any] | None = None, *, drop: bool = False) -> dict[str, Any]:
    """LiteLLM's arguments for what a client sent."""
    body = {"model": "today", "messages": MESSAGES, **(sent or {})}
    reading = ChatDialect().read(orjson.dumps(body), {}, DialectRules())
    return provider_fields.provider_arguments(
        orjson.loads(reading.engine_body("openai/gpt")), reading.request, drop=drop
    )


def test_what_hone_adds_for_the_engine_is_not_asked() -> None:
    assert arguments() == {"messages": MESSAGES}
    assert arguments({"stream": True}) == {
        "messages": MESSAGES,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@given(st.dictionaries(st.sampled_from(sorted(NEUTRAL)), st.sampled_from([0.0, 0.5, 1.0])))
def test_sampling_values_are_the_clients_own_even_where_they_are_neutral(sent: dict[str, float]) -> None:
    sent = {name: int(value) if name == "top_k" else value for name, value in sent.items()}
    assert arguments(sent) == {"messages": MESSAGES, **sent}


def test_logprobs_are_asked_for_where_the_client_did() -> None:
    assert arguments({"logprobs": True, "top_logprobs": 3}).items() >= {"logprobs": True, "top_logprobs": 3}.items()
    assert arguments({"logprobs": True}) == {"messages": MESSAGES, "logprobs": True}
    assert arguments({"logprobs": False}) == {"messages": MESSAGES}


ENGINES_ID = "chatcmpl-tool-0123456789abcdef0123456789abcdef"  # 46 characters: OpenAI takes 40


def sent_ids(id_: str, model: str) -> tuple[str, str]:
    """The id of a call and that of its result, as a provider gets them."""
    call = {"id": id_, "type": "function", "function": {"name": "find", "arguments": "{}"}}
    history = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}]
    history.append({"role": "tool", "tool_call_id": id_, "content": "shipped"})
    reading = ChatDialect().read(orjson.dumps({"model": "today", "messages": history}), {}, DialectRules())
    body = orjson.loads(reading.engine_body("openai/gpt"))
    messages = provider_fields.provider_arguments(body, reading.request, drop=False, model=model)["messages"]
    assert [message.get("tool_call_id") for message in reading.request.messages][-1] == id_  # the record's is unchanged
    return messages[-2]["tool_calls"][0]["id"], messages[-1]["tool_call_id"]


@pytest.mark.parametrize("model", ["openai/gpt", "anthropic/claude", "mistral/small", "groq/llama"])
def test_a_provider_gets_ids_that_it_takes_the_same_in_both_places_and_every_time(model: str) -> None:
    first, second = sent_ids(ENGINES_ID, model), sent_ids(ENGINES_ID, model)
    assert first == second
    assert first[0] == first[1] != sent_ids(ENGINES_ID[:-1] + "0", model)[0]
    assert len(first[0]) == 9
    assert first[0].isalnum()


def test_ids_that_a_provider_takes_stay() -> None:
    assert sent_ids("call_first00001", "openai/gpt") == ("call_first00001",) * 2
    assert sent_ids("abcdef123", "mistral/small") == ("abcdef123",) * 2
    assert sent_ids("call_first00001", "mistral/small")[0] != "call_first00001"
    thought = "call_1__thought__" + "A/+=" * 20  # LiteLLM reads the model's thought from it
    assert sent_ids(thought, "gemini/flash") == (thought,) * 2
    assert sent_ids("functions.find:0", "openai/gpt")[0].isalnum()


@given(st.dictionaries(st.text(min_size=1), st.integers(-9, 9) | st.text(min_size=1), max_size=5))
def test_no_unknown_field_ever_becomes_an_argument(sent: dict[str, Any]) -> None:
    sent = {f"x-{name}": value for name, value in sent.items()}  # no field that Hone or the engine knows
    assert arguments(sent, drop=True) == {"messages": MESSAGES}


@pytest.mark.parametrize("name", ["api_base", "mock_response", "callbacks", "chat_template_kwargs"])
def test_an_unknown_field_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadRequest, match=name) as told:
        arguments({name: {"a": 1}})
    assert told.value.param == name


def test_an_engines_echo_is_cleaned_of_what_others_refuse() -> None:
    echo: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [], "reasoning": "hm", "audio": None}
    body = {"messages": [*MESSAGES, echo], "model": "x"}
    reading = ChatDialect().read(orjson.dumps(body), {}, DialectRules())
    found = provider_fields.provider_arguments(orjson.loads(reading.engine_body("m")), reading.request, drop=False)
    assert found["messages"][1] == {"role": "assistant", "tool_calls": [], "content": None}


def test_an_answer_is_a_chat_completion_with_nothing_of_litellms() -> None:
    message = {"role": "assistant", "tool_calls": [], "provider_specific_fields": {"refusal": None}}
    answer = {"id": "a", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    found = provider_fields.to_completion(answer | {"usage": {"prompt_tokens": 1, "cost": 0.1}})
    assert found["choices"][0]["message"] == {"role": "assistant", "tool_calls": [], "content": None}
    assert found["usage"] == {"prompt_tokens": 1}


def test_usage_comes_without_choices_unless_they_say_something() -> None:
    silent = {"index": 0, "delta": {}}
    assert provider_fields.to_chunk({"choices": [silent], "usage": {"cost": 1}}) == {"choices": [], "usage": {}}
    ending = {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert provider_fields.to_chunk({"choices": [ending], "usage": {}})["choices"][0]["finish_reason"] == "stop"
    assert provider_fields.to_chunk({"choices": [silent]})["choices"][0]["finish_reason"] is None
