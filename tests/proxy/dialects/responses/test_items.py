"""Items of the Responses API as messages and back: an answer that comes back is the message that was recorded."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.base import DialectRules
from proxy.dialects.responses.items import (
    ItemExtras,
    continues_last,
    input_items,
    item_id,
    output_items,
    parse_item_id,
    parse_messages,
    referenced_ids,
    resolve_references,
)
from proxy.errors import BadRequest, UnknownObject
from recorder.messages.content_hashes import canonical_message

RULES = DialectRules(media_hosts=frozenset({"pictures.example"}))
ID = "resp_0123456789abcdef"
OTHER = "resp_fedcba9876543210"

texts = st.text(min_size=1, max_size=20)
calls = st.builds(
    lambda id_, name, arguments: {
        "id": f"chatcmpl-tool-{id_:016x}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    st.integers(0, 2**64 - 1),
    texts,
    st.one_of(st.just('{"a": 1}'), st.just("{}"), texts),
)
answers = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.one_of(st.none(), texts)},
    optional={"reasoning": texts, "tool_calls": st.lists(calls, min_size=1, max_size=3)},
).filter(lambda m: m["content"] or m.get("tool_calls"))
others = st.one_of(
    st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "system"]), texts),
    st.builds(lambda id_, text: {"role": "tool", "tool_call_id": id_, "content": text}, texts, texts),
)


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def call(name: str = "f", call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def assistant_text(text: str, **more: Any) -> dict[str, Any]:
    return message("assistant", [{"type": "output_text", "text": text, "annotations": []}], **more)


# --- round trips


@given(answers)
def test_an_answer_that_comes_back_is_the_message_that_was_recorded(recorded: dict[str, Any]) -> None:
    items = json.loads(json.dumps(output_items(recorded, ID)))
    [back] = parse_messages(items, RULES)
    assert canonical_message(back) == canonical_message(recorded)
    assert back.get("reasoning") == recorded.get("reasoning")


@given(answers, st.randoms(use_true_random=False))
def test_so_it_is_however_a_client_thins_the_items_out(recorded: dict[str, Any], chance: Any) -> None:
    """Clients leave out what may be left out: ids, statuses, nulls, annotations."""
    thinned = []
    for item in output_items(recorded, ID):
        kept = {
            k: v for k, v in item.items() if v is not None and not (k in ("id", "status") and chance.random() < 0.5)
        }
        thinned.append(kept)
    [back] = parse_messages(thinned, RULES)
    assert canonical_message(back) == canonical_message(recorded)


@given(st.lists(st.one_of(answers, others), min_size=1, max_size=8))
def test_a_conversation_comes_back_message_by_message(conversation: list[dict[str, Any]]) -> None:
    items: list[Any] = []
    for at, one in enumerate(conversation):
        if one["role"] == "assistant":
            items += output_items(one, f"resp_{at:016x}")
        elif one["role"] == "tool":
            items.append({"type": "function_call_output", "call_id": one["tool_call_id"], "output": one["content"]})
        else:
            items.append(message(one["role"], one["content"]))
    back = parse_messages(items, RULES)
    assert [canonical_message(m) for m in back] == [canonical_message(m) for m in conversation]


@given(st.lists(st.one_of(answers, others), min_size=1, max_size=8))
def test_what_is_listed_as_input_is_the_conversation(conversation: list[dict[str, Any]]) -> None:
    items = input_items(conversation, ID)
    assert len({item["id"] for item in items}) == len(items)
    back = parse_messages(
        [{k: v for k, v in item.items() if k != "id"} for item in items if item["type"] != "x"], RULES
    )
    shown = [m for m in back if m["role"] != "assistant"]
    assert [canonical_message(m) for m in shown] == [
        canonical_message(m) for m in conversation if m["role"] != "assistant"
    ]


# --- ids


def test_an_items_id_tells_its_answer() -> None:
    assert parse_item_id(item_id("fc", ID, 12)) == (ID, 12)
    for foreign in ("msg_1", "call_0123456789abcdef_1", "msg_0123456789abcdef", "msg_0123456789ABCDEF_1", ""):
        assert parse_item_id(foreign) is None


def test_named_items_are_put_in_their_places() -> None:
    answer = output_items({"role": "assistant", "content": "Yes", "reasoning": "Hm"}, ID)
    named = {"type": "item_reference", "id": answer[1]["id"]}
    asked = [message("user", "So?"), named]
    assert referenced_ids(asked) == [named["id"]]
    assert resolve_references(asked, {ID: answer}) == [asked[0], answer[1]]
    assert resolve_references("text", {}) == "text"
    assert referenced_ids("text") == []
    with pytest.raises(UnknownObject, match="not found"):
        resolve_references([named], {})


# --- what items mean


def test_a_text_is_the_users() -> None:
    assert parse_messages("Where?", RULES) == [{"role": "user", "content": "Where?"}]


def test_a_message_needs_no_type() -> None:
    assert parse_messages([{"role": "developer", "content": "Be brief."}], RULES)[0]["role"] == "developer"


def test_items_of_one_turn_are_one_message() -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
    [turn] = parse_messages([reasoning, assistant_text("I look."), call("a", "1"), call("b", "2")], RULES)
    assert (turn["reasoning"], turn["content"]) == ("Hm", "I look.")
    assert [c["function"]["name"] for c in turn["tool_calls"]] == ["a", "b"]


def test_two_texts_are_two_turns_unless_they_are_of_one_answer() -> None:
    apart = parse_messages([assistant_text("One."), assistant_text("Two.")], RULES)
    assert [m["content"] for m in apart] == ["One.", "Two."]
    one = [
        assistant_text("One. ", id=item_id("msg", ID, 0)),
        call(id=item_id("fc", ID, 1)),
        assistant_text("Two.", id=item_id("msg", ID, 2)),
    ]
    [turn] = parse_messages(one, RULES)
    assert turn["content"] == "One. Two."
    two = parse_messages(
        [assistant_text("One.", id=item_id("msg", ID, 0)), assistant_text("Two.", id=item_id("msg", OTHER, 0))], RULES
    )
    assert len(two) == 2


def test_a_tools_result_ends_a_turn() -> None:
    result = {"type": "function_call_output", "call_id": "call_1", "output": "sent"}
    roles = [m["role"] for m in parse_messages([call(), result, call("g", "call_2")], RULES)]
    assert roles == ["assistant", "tool", "assistant"]


def test_parts_are_chats() -> None:
    image = {"type": "input_image", "image_url": "https://pictures.example/x.png", "detail": "low"}
    [asked] = parse_messages([message("user", [{"type": "input_text", "text": "See"}, image])], RULES)
    assert asked["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/x.png", "detail": "low"}},
    ]


def test_a_refusal_is_what_was_said() -> None:
    [turn] = parse_messages([message("assistant", [{"type": "refusal", "refusal": "No."}])], RULES)
    assert turn["content"] == "No."


def test_an_item_that_is_not_finished_is_gone_on_with() -> None:
    assert continues_last([assistant_text("Your", status="incomplete")])
    assert not continues_last([assistant_text("Yours", status="completed")])
    assert not continues_last([call(status="incomplete")])
    assert not continues_last("text")
    assert not continues_last([])


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([], "input"),
        (3, "input"),
        ([3], "input[0]"),
        ([{}], "input[0]"),
        ([{"type": ["x"]}], "input[0]"),
        ([{"type": "custom_tool_call", "call_id": "x", "name": "f", "input": 3}], "input[0]"),
        ([{"type": "shell_call", "call_id": "x"}], "input[0]"),
        ([{"type": "tool_search_output", "execution": "client", "call_id": "x"}], "input[0].tools"),
        ([{"role": "robot", "content": "x"}], "input[0].role"),
        ([{"role": ["user"], "content": "x"}], "input[0].role"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": ["x"]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": ["x"]}]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": "input_text", "text": 3}]}], "input[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "http://10.0.0.1/"}]}], None),
        ([{"role": "assistant", "content": [{"type": "output_text"}]}], "input[0].content[0]"),
        ([{"type": "function_call", "call_id": "x", "name": "f"}], "input[0].arguments"),
        ([{"type": "function_call", "name": "f", "arguments": "{}"}], "input[0].call_id"),
        ([call(namespace=3)], "input[0].namespace"),
        ([{"type": "function_call_output", "call_id": "x", "output": {}}], "input[0].output"),
        ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
        ([{"type": "reasoning", "content": 3}], "input[0].content"),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_place(items: Any, param: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_messages(items, RULES)
    assert param is None or refused.value.param == param


_NAMES = ["type", "role", "content", "id", "text", "output", "summary", "call_id", "name", "arguments", "image_url"]
_WORDS = ["message", "reasoning", "function_call", "function_call_output", "user", "assistant", "input_text"]
_WORDS += ["input_image", "item_reference", "https://pictures.example/x", "msg_0123456789abcdef_0"]
_hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=5),
    max_leaves=12,
)


@given(_hostile)
def test_anything_at_all_is_read_or_refused(hostile: Any) -> None:
    with contextlib.suppress(BadRequest, UnknownObject):
        extras = ItemExtras()
        assert parse_messages(resolve_references(hostile, {}), RULES, extras) or extras.dropped
    assert all(isinstance(id_, str) for id_ in referenced_ids(hostile))
    assert continues_last(hostile) in (True, False)


def test_an_answer_in_many_items_is_read_item_by_item() -> None:
    """Were its text copied with each, the test's time would not do by far."""
    count, piece = 2**16, "x" * 256
    item = {"type": "message", "role": "assistant", "id": "msg_0123456789abcdef_0", "content": piece}
    [message] = parse_messages([item] * count, RULES)
    assert message == {"role": "assistant", "content": piece * count}
