"""What is redacted is nowhere in the store, by no way round, and the run goes on as if it were not."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, RecordedCall, TrajectoryRef
from recorder.messages.redaction import Redactor
from recorder.messages.tokens import pack_ids
from recorder.settings import RecorderSettings
from recorder.states import CallState, Confidence
from recorder.store.database import Store, sqlite_url
from recorder.store.schema import blobs, calls, choices, nodes
from recorder.views.trajectories import transcripts
from tests.effort import scaled
from tests.recorder.talk import Talk, assistant, choice, request, tool_result, turn, user

ALL = RecorderSettings(redact=["email", "credit_card", "api_key", "phone", "case-[0-9]{6}"])
SECRETS = ("anna@example.org", "4111 1111 1111 1111", "sk-abcdefghij0123456789", "+49 30 901820", "case-123456")
OTHERS = ("bert@example.net", "5500 0000 0000 0004", "sk-zyxwvutsrq9876543210", "+33 1 709112", "case-987654")


def ids_of(text: str) -> list[int]:
    """A tokenizer: one id a character."""
    return [50_000 + ord(c) for c in text]


def spelled(value: Any) -> list[int]:
    return ids_of(json.dumps(value, ensure_ascii=False))


@asynccontextmanager
async def recording(folder: Path, kept: RecorderSettings = ALL) -> AsyncIterator[tuple[Store, Talk]]:
    store = Store(sqlite_url(folder))
    recorder = Recorder(store, kept)
    await recorder.start()
    try:
        yield store, Talk(recorder)
    finally:
        await recorder.stop()
        await store.close()


@dataclass(frozen=True)
class Planted:
    """One exchange, with a secret (or none) in one part of it."""

    part: str
    secret: int | None
    before: str


PARTS = (
    "user", "parts", "media", "args", "escaped", "result", "content", "reasoning", "tools", "format", "rest", "field",
    "tags", "error", "meta", "stop", "number", "key", "nested",
)  # fmt: skip
words = st.text('ab é"\\{}[]:,\n', max_size=12)
planted = st.builds(
    Planted, part=st.sampled_from(PARTS), secret=st.none() | st.integers(0, len(SECRETS) - 1), before=words
)


async def converse(talk: Talk, plan: Sequence[Planted], secrets: Sequence[str]) -> list[RecordedCall]:
    """A conversation that grows by one exchange a step, attributed by what it holds alone."""
    history: list[dict[str, Any]] = [{"role": "system", "content": "You help."}]
    turns = []
    for number, step in enumerate(plan):
        text = step.before + " " + (secrets[step.secret] if step.secret is not None else "nothing") + " after"
        bare = secrets[step.secret] if step.secret is not None else "nothing"
        at = step.part
        asked: dict[str, Any] = user(f"question {number}")
        said: dict[str, Any] = assistant(f"answer {number}")
        more: dict[str, Any] = {}
        if at == "user":
            asked = user(text)
        elif at == "parts":
            asked = user([{"type": "text", "text": text}, {"type": "text", "text": "and"}])  # type: ignore[arg-type]
        elif at == "media":
            asked = user([{"type": "input_text", "input_text": "x" * 5000 + " " + text}])  # type: ignore[arg-type]
        elif at in ("args", "escaped", "nested"):
            arguments = json.dumps({"to": json.dumps({"of": text}) if at == "nested" else text})
            if at == "escaped":
                arguments = arguments.replace("@", "\\u0040").replace("1", "\\u0031").replace("-", "\\u002d")
            call = {"id": f"call-{number}", "type": "function", "function": {"name": "find", "arguments": arguments}}
            said = {"role": "assistant", "content": None, "tool_calls": [call]}
        elif at in ("result", "key", "number"):
            found: Any = {"key": {bare: 1}, "number": {"n": 4111111111111111}}.get(at, {"found": text})
            asked = tool_result("call-x", json.dumps(found))
        elif at == "content":
            said = assistant(text)
        elif at == "reasoning":
            said = {**said, "reasoning": text}
        elif at == "tools":
            more["tools"] = [{"type": "function", "function": {"name": "find", "description": text}}]
        elif at == "format":
            more["response_format"] = {"type": "json_schema", "json_schema": {"description": text}}
        elif at == "rest":
            more["rest"] = {"chat_template_kwargs": {"who": text}}
        elif at == "field":
            more["rest"] = {"user": text, "metadata": {bare: "x"}}
        elif at == "tags":
            more["address"] = Address(tags={"who": bare})
        elif at == "error":
            more |= {"state": CallState.ERRORED, "error": f"bad request: {text}"}
        elif at == "meta":
            more["response_meta"] = {"id": "x", "warnings": [text], "prompt_logprobs": [{"1": {"decoded_token": "a"}}]}
        elif at == "stop":
            more["stop"] = (bare,)
        history = [*history, asked]
        rendered = [history, more.get("tools"), more.get("rest") if at == "rest" else None]
        sampled = choice(said, token_ids=spelled(said), logprobs=[-0.5] * len(spelled(said)))
        address = more.pop("address", Address())
        stop = more.pop("stop", ())
        made = await talk.attributed(history, [sampled], address, prompt_token_ids=spelled(rendered), **more)
        made = replace(made, request=replace(made.request, sampling=replace(made.request.sampling, stop=stop)))
        talk.recorder.begin(made)
        await talk.recorder.commit(made)
        turns.append(made)
        history = [*history, {k: v for k, v in said.items() if k != "reasoning"}]
    return turns


def in_file(folder: Path, secret: str) -> list[str]:
    """Which files of the store hold a secret: its bytes in any spelling, or its token ids."""
    forms = {secret.encode(), json.dumps(secret)[1:-1].encode(), secret.encode("utf-16-le"), pack_ids(ids_of(secret))}
    forms |= {secret.replace(" ", "").encode()}
    return [f.name for f in folder.iterdir() if any(form in f.read_bytes() for form in forms)]


async def test_no_part_of_a_call_holds_a_secret(tmp_path: Path, empty_database: Path) -> None:
    plan = [Planted(part, at % len(SECRETS), "a ") for at, part in enumerate(PARTS)]
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (store, talk):
        turns = await converse(talk, plan, SECRETS)
        assert [s for s in SECRETS if in_file(tmp_path, s)] == []
        await check_lineage(store, turns, plan)


async def test_the_search_finds_what_is_not_redacted(tmp_path: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path, RecorderSettings()) as (_, talk):
        await converse(talk, [Planted("user", 0, "")], SECRETS)
        assert in_file(tmp_path, SECRETS[0]) == ["hone.db-wal"]
        forms = (tmp_path / "hone.db-wal").read_bytes()
        assert SECRETS[0].encode() in forms
        assert pack_ids(ids_of(SECRETS[0])) in forms


@pytest.mark.slow
@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(planted, min_size=1, max_size=5))
def test_no_secret_is_in_the_file_neither_as_text_nor_as_ids(empty_database: Path, plan: list[Planted]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copy(empty_database, folder / "hone.db")
            async with recording(folder) as (store, talk):
                turns = await converse(talk, plan, SECRETS)
                assert {f.name for f in folder.iterdir()} >= {"hone.db", "hone.db-wal"}
                for secret in SECRETS:
                    assert in_file(folder, secret) == []
                await check_lineage(store, turns, plan)
            for secret in SECRETS:
                assert in_file(folder, secret) == []

    asyncio.run(run())


async def check_lineage(store: Store, turns: Sequence[RecordedCall], plan: Sequence[Planted]) -> None:
    """Each call goes on from the one before, unless that one failed and its answer is no turn."""
    homes = {t.attribution.trajectory.id for t in turns}
    assert len(homes) == 1
    assert [t.attribution.confidence for t in turns] == [Confidence.NEW] + [Confidence.EXACT] * (len(turns) - 1)
    view = await transcripts.load_trajectory(store, homes.pop(), with_tokens=True)
    by_id = {c.id: c for c in view.calls}
    touched = False
    for one, step in zip(turns, plan, strict=True):
        beside = {"field", "tags", "error", "meta"}
        found = step.secret is not None or step.part == "number"
        touched = touched or (found and step.part not in beside)
        call = by_id[one.call_id]
        assert (call.prompt_token_ids is None) == touched
        assert (call.choices[0].untrainable_reason == "redacted") == touched
        assert (call.choices[0].token_ids is None) == (call.choices[0].logprobs is None) == touched
        assert len(call.messages) == len(one.request.messages)


async def stored(folder: Path, secrets: Sequence[str], plan: Sequence[Planted]) -> Any:
    """Everything in the store that is made of what was said."""
    async with recording(folder) as (store, talk):
        await converse(talk, plan, secrets)
        async with store.read() as conn:
            columns: tuple[Any, ...] = (calls.c.body_hash, calls.c.prompt_node_id, calls.c.tools_blob_id,
                calls.c.format_blob_id, calls.c.request_blob_id, calls.c.sampling, calls.c.response_meta,
                calls.c.prompt_delta, calls.c.prompt_hashes, calls.c.error)  # fmt: skip
            tables = (
                select(nodes).order_by(nodes.c.id),
                select(blobs).order_by(blobs.c.id),
                select(*columns).order_by(calls.c.prompt_node_id),
                select(choices.c.node_id, choices.c.token_ids, choices.c.hashes).order_by(choices.c.node_id),
            )
            return [(await conn.execute(query)).all() for query in tables]


@pytest.mark.slow
@settings(max_examples=scaled(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(planted, min_size=1, max_size=4))
@example([Planted("escaped", 1, "é:")])  # one of the secrets has an escape, the other has none
def test_the_store_is_the_same_whatever_the_secret_was(empty_database: Path, plan: list[Planted]) -> None:
    async def run(secrets: Sequence[str]) -> Any:
        with tempfile.TemporaryDirectory() as name:
            shutil.copy(empty_database, Path(name) / "hone.db")
            return await stored(Path(name), secrets, plan)

    assert asyncio.run(run(SECRETS)) == asyncio.run(run(OTHERS))


async def test_a_mark_says_what_was_there_and_the_node_that_it_was_redacted(
    tmp_path: Path, empty_database: Path
) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (store, talk):
        made = await talk.call([user("I am anna@example.org, case-123456")], "Hello")
        view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
        assert [m["content"] for m in view.messages] == ["I am [redacted:email], [redacted:pattern]", "Hello"]
        async with store.read() as conn:
            marked = {r.role: r.redacted for r in await conn.execute(select(nodes))}
    assert marked == {"user": True, "assistant": False}


async def test_what_the_client_sent_is_not_changed(tmp_path: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (_, talk):
        made = await talk.call([user("anna@example.org")], "to bert@example.net")
    assert made.request.messages == [user("anna@example.org")]
    assert made.choices[0].message == assistant("to bert@example.net")
    assert made.choices[0].token_ids == [7, 8, 9]


async def test_a_call_that_goes_on_from_a_redacted_one_keeps_no_ids(tmp_path: Path, empty_database: Path) -> None:
    """What was sampled there and never sent by the client may be in the prompt all the same."""
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (store, talk):
        thought = {**assistant("ok"), "reasoning": "they are anna@example.org"}
        await talk.call([user("hi")], thought)
        made = await talk.call([user("hi"), assistant("ok"), user("and?")], "fine", prompt_token_ids=[1, 2, 3])
        view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
    assert [c.prompt_token_ids for c in view.calls] == [None, None]
    assert [c.choices[0].untrainable_reason for c in view.calls] == ["redacted", "redacted"]


async def test_ids_without_text_are_not_kept(tmp_path: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (store, talk):
        made = await talk.call([user("hi")], [choice(None)], state=CallState.ABORTED)
        view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
    assert view.calls[0].choices[0].token_ids is None
    assert list(view.calls[0].prompt_token_ids or ()) == [1, 2, 3]


async def test_a_retry_is_known_by_its_redacted_body(tmp_path: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (_, talk):
        asked = [user("I am anna@example.org")]
        first = await talk.call(asked, [], state=CallState.ERRORED)
        again = await talk.call(list(asked), "Hello", retry_count=1)
    assert again.attribution.source == "retry"
    assert again.attribution.trajectory.id == first.attribution.trajectory.id


def test_without_patterns_everything_is_handed_back() -> None:
    redaction = Redactor()
    messages = [user("anna@example.org")]
    assert redaction.messages(messages) is messages
    assert redaction.value({"a": "anna@example.org"}) == {"a": "anna@example.org"}


def test_overlapping_matches_are_one_mark() -> None:
    redaction = Redactor(["email", "anna.*org!"])
    assert redaction.text("I, anna@example.org!, am") == "I, [redacted:email], am"


def test_a_pattern_that_matches_the_form_of_a_message_leaves_the_form() -> None:
    redaction = Redactor(["[a-z]+"])
    assert redaction.messages([user("hello there")]) == [
        {"role": "user", "content": "[redacted:pattern] [redacted:pattern]"}
    ]


async def test_a_prompt_of_token_ids_is_not_kept(tmp_path: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    async with recording(tmp_path) as (store, talk):
        made = await talk.call([user("[50097,50110,50110,50097]")], "ok", prompt_token_ids=ids_of("anna"))
        view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
    assert view.calls[0].messages == [user("[redacted:token_ids]")]
    assert view.calls[0].prompt_token_ids is None


def test_what_spells_an_answer_token_by_token_goes_and_the_rest_of_it_stays() -> None:
    redaction = Redactor(["email"])
    meta = {"responses": {"id": "resp_1", "logprobs": [[{"token": "an"}]], "items": [{"text": "anna@example.org"}]}}
    made = turn(TrajectoryRef("traj", None), request([user("anna@example.org")]), [], response_meta=meta)
    assert redaction.turn(made).response_meta == {
        "responses": {"id": "resp_1", "items": [{"text": "[redacted:email]"}]}
    }
