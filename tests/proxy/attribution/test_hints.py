"""What a call lets on about its run: which names count, for what, and that no value does harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.attribution.hints import (
    MAX_READ_CHARS,
    MAX_SHOWN_CHARS,
    NO_HINTS,
    Hint,
    HintKind,
    client_of,
    read_hints,
    read_traceparent,
    session_names,
)

TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def names(headers: dict[bytes, bytes], rest: dict[str, Any] | None = None, dialect: str = "chat") -> list[str]:
    return [hint.name for hint in read_hints(headers, dialect, rest or {}).found]


def test_nothing_said_is_nothing_made() -> None:
    assert read_hints({b"content-type": b"application/json"}, "chat", {"model": "m"}) is NO_HINTS


@pytest.mark.parametrize(
    "header",
    [
        "x-litellm-session-id", "helicone-session-id", "x-claude-code-session-id", "x-session-id", "agent-session-id",
        "x-opencode-session", "x-session-affinity", "x-openwebui-chat-id",
    ],
)  # fmt: skip
def test_vendors_session_headers_name_a_session(header: str) -> None:
    [hint] = read_hints({header.encode(): b" abc "}, "chat", {}).found
    assert hint == Hint(HintKind.SESSION, "session_header", header, "abc", True)


@pytest.mark.parametrize("name", ["session_id", "litellm_session_id"])
def test_a_session_named_in_the_body_is_one(name: str) -> None:
    [hint] = read_hints({}, "chat", {name: " abc "}).found
    assert hint == Hint(HintKind.SESSION, "metadata", name, "abc")


def test_the_strongest_comes_first() -> None:
    headers = {b"traceparent": TRACE, b"x-session-id": b"a", b"x-litellm-trace-id": b"b", b"baggage": b"session.id=c"}
    rest = {"prompt_cache_key": "d", "metadata": {"thread_id": "e", "session_id": "f"}}
    assert names(headers, rest) == [
        "x-session-id",
        "x-litellm-trace-id",
        "metadata.session_id",
        "metadata.thread_id",
        "prompt_cache_key",
        "baggage.session.id",
        "traceparent",  # its span
        "traceparent",
    ]
    hints = read_hints(headers, "chat", rest)
    assert [h.name for h in hints.of(HintKind.LOOSE)] == ["x-litellm-trace-id", "prompt_cache_key"]
    of_body = hints.session(of_header=False)
    assert of_body is not None
    assert of_body.value == "f"


def test_codex_is_believed_only_under_its_own_name() -> None:
    said = {b"session-id": b"s", b"thread-id": b"s"}
    assert names(said) == []
    codex = said | {b"user-agent": b"codex_cli_rs/0.130.0"}
    assert names(codex) == ["session-id"]
    assert names({b"session_id": b"s", b"user-agent": b"codex-tui/1"}) == ["session-id"]  # one name, both spellings
    assert not read_hints(codex, "responses", {}).sub_agent
    assert read_hints(codex | {b"thread-id": b"other"}, "responses", {}).sub_agent


def test_claude_code_tells_its_sub_agents() -> None:
    session = {b"x-claude-code-session-id": b"s"}
    assert not read_hints(session, "messages", {}).sub_agent
    assert read_hints(session | {b"x-claude-code-agent-id": b"a1"}, "messages", {}).sub_agent
    assert not read_hints(session | {b"x-claude-code-agent-id": b" "}, "messages", {}).sub_agent


@pytest.mark.parametrize(
    "user_id",
    [
        "user_" + "0" * 64 + "_account__session_57a121ec-f78c-48c3-a745-e3036a3ecc33",
        json.dumps({"device_id": "d", "account_uuid": "", "session_id": "57a121ec-f78c-48c3-a745-e3036a3ecc33"}),
    ],
)
def test_claude_codes_session_is_read_out_of_the_users_id(user_id: str) -> None:
    [hint] = read_hints({}, "messages", {"metadata": {"user_id": user_id}}).found
    assert hint.value == "57a121ec-f78c-48c3-a745-e3036a3ecc33"
    assert read_hints({}, "chat", {"metadata": {"user_id": user_id}}) is NO_HINTS


@pytest.mark.parametrize("user_id", ["somebody", "{", "[1]", '{"session_id": 3}', "x_session_y", None, 7, ["user_"]])
def test_a_users_id_alone_is_no_session(user_id: Any) -> None:
    assert read_hints({}, "messages", {"metadata": {"user_id": user_id}}) is NO_HINTS


@pytest.mark.parametrize("trace", [b"", b"00", b"00-00000000000000000000000000000000-00f067aa0ba902b7-01", b"a-b-c-d"])
def test_a_broken_trace_says_nothing(trace: bytes) -> None:
    assert read_hints({b"traceparent": trace}, "chat", {}) is NO_HINTS


@pytest.mark.parametrize(
    "trace",
    [
        TRACE.decode(),
        TRACE.decode().upper(),
        f" {TRACE.decode()} ",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-what-a-later-version-says",
    ],
)
def test_a_trace_and_its_span_are_read_as_w3c_has_them(trace: str) -> None:
    span, whole = read_traceparent(trace)
    assert (whole.kind, whole.source, str(whole)) == (
        HintKind.TRACE, "trace", "traceparent:4bf92f3577b34da6a3ce929d0e0e4736",
    )  # fmt: skip
    assert (span.kind, span.source, str(span)) == (HintKind.SPAN, "traceparent", f"{whole}-00f067aa0ba902b7")


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        {"a": 1},
        "0" * 10_000,
        "00-x-y-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
    ],
)
def test_what_is_no_traceparent_says_nothing(value: object) -> None:
    assert read_traceparent(value) == ()


def test_two_names_with_one_value_are_two_sessions() -> None:
    found = read_hints({b"x-session-id": b"x"}, "chat", {"metadata": {"session_id": "x"}}).found
    assert len({str(hint) for hint in found}) == 2


anything = st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.lists(st.text()), st.booleans())


@given(
    st.dictionaries(
        st.sampled_from([b"x-session-id", b"traceparent", b"baggage", b"session-id", b"x-litellm-trace-id"]),
        st.binary(max_size=400),
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.one_of(anything, st.dictionaries(st.sampled_from(["session_id", "user_id"]), anything)),
            "prompt_cache_key": anything,
        },
    ),
    st.sampled_from(["chat", "messages"]),
)
def test_whatever_is_sent_becomes_a_bounded_name_or_nothing(
    headers: dict[bytes, bytes], rest: dict[str, Any], dialect: str
) -> None:
    for hint in read_hints(headers | {b"user-agent": b"codex"}, dialect, rest).found:
        assert len(hint.value) <= MAX_SHOWN_CHARS
        assert hint.value.isprintable()


def test_long_values_stay_different_and_endless_ones_say_nothing() -> None:
    def ids(value: str) -> set[str]:
        return {str(h) for h in read_hints({}, "chat", {"prompt_cache_key": value}).found}

    assert ids("x" * 300) != ids("x" * 301)
    assert ids("x" * (MAX_READ_CHARS + 1)) == set()


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        (b"OpenAI/Python 2.3.0", "OpenAI/Python"),
        (b"codex_cli_rs/0.169.0 (Linux 6.1; x86_64) xterm", "codex_cli_rs"),
        (b"claude-cli/2.0.1 (external, cli)", "claude-cli"),
        (b"opencode", "opencode"),
        (b"ai/5.0 ai-sdk/openai/2.0", "ai"),
        (b"x/yes;no", "x"),
        (b"\x1b[2Jred", None),
        (b"(no product)", None),
        (b"", None),
    ],
)
def test_a_client_is_named_by_its_product(agent: bytes, client: str | None) -> None:
    assert client_of({b"user-agent": agent}) == client


@given(st.binary(max_size=300))
def test_a_clients_name_is_short_and_may_be_printed(agent: bytes) -> None:
    client = client_of({b"user-agent": agent})
    assert client is None or (0 < len(client) <= 65 and client.isascii() and client.isprintable())


@pytest.mark.parametrize(
    ("headers", "rest"),
    [
        ({b"x-session-id": b" thread-7 "}, {}),
        ({b"user-agent": b"codex_cli_rs/1", b"session_id": b"thread-7"}, {}),
        ({}, {"metadata": {"thread_id": "thread-7"}}),
        ({}, {"session_id": "thread-7"}),
        ({}, {"prompt_cache_key": "thread-7"}),
    ],
)
def test_a_sessions_stored_name_is_among_those_that_its_value_may_have(headers: Any, rest: Any) -> None:
    [hint] = read_hints(headers, "chat", rest).found
    assert str(hint) in session_names("thread-7")
