"""Redaction of hostile text: in linear time, beside the event loop, and never stored where it did not finish."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.base.patterns import BUILT_IN
from recorder.capture.recorder import Recorder
from recorder.messages.redaction import MARK, Redactor
from recorder.messages.tokens import pack_ids
from recorder.settings import RecorderSettings
from recorder.states import Confidence
from recorder.store.database import Store, sqlite_url
from recorder.views.trajectories import transcripts
from tests.event_loop import GAP_S, loop_gaps
from tests.recorder.talk import Talk, assistant, choice, user

HOSTILE = {
    "prose": "The quick brown fox jumps over 12 lazy dogs, and it costs $45.99 on 2024-01-02. ",
    "letters": "A",
    "digits": "1",
    "single digits": "4 ",
    "groups": "4444 ",
    "cards": "4111 1111 1111 1111 ",
    "no cards": "4111 1111 1111 1112,",
    "web tokens": "-eyJ",
    "half web tokens": " eyJaaaaaaaaa.bbbbbbbbbbb",
    "at": "@",
    "short domains": "@a.a@",
    "addresses": "a@a.a ",
    "keys": "-sk-",
    "no keys": "xsk-",
    "headers": "bearer ",
    "half private keys": "-----BEGIN ",
    "private keys": "-----BEGIN PRIVATE KEY-----\\n",
    "countries": "+1(2)3/4-5 ",
    "areas": "(212) ",
    "escapes": "a\\nsk-",
}
SIZE = 1_000_000
MOST_S = 0.05  # a MB
SLOW = "(?:x|xx)+y"  # takes longer than the universe has existed
SECRET = "x" * 64 + " z y"  # with all that a match needs, but not in that order


def cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of three tries: a machine that does other work as well shows only in some."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("pattern", BUILT_IN)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_pattern_takes_linear_time(text: str, pattern: str) -> None:
    find = BUILT_IN[pattern].spans
    small = (HOSTILE[text] * SIZE)[: SIZE // 4]
    large = (HOSTILE[text] * SIZE)[:SIZE]
    list(find(small))
    slow, slower = cpu_s(lambda: list(find(small))), cpu_s(lambda: list(find(large)))
    assert slower < max(10 * slow, MOST_S)  # quadratic time would be 16 times as long


@pytest.mark.parametrize("text", [*HOSTILE, "json", "ids", "lists", "escaped json"])
async def test_the_loop_runs_while_hostile_text_is_redacted(text: str) -> None:
    redactor = Redactor([*BUILT_IN, "case-[0-9]{6}"])
    content = (HOSTILE.get(text, "") * SIZE)[: 2 * SIZE]
    if text == "json":
        content = json.dumps([{"a": "x\ny"}] * 100_000)
    elif text == "ids":
        content = json.dumps(list(range(400_000)), separators=(",", ":"))
    elif text == "lists":
        content = "[" + "[]," * 300_000 + '"\\n"]'
    elif text == "escaped json":
        content = '{"a": "' + "\\u0041" * 300_000
    async with loop_gaps() as gaps:
        await redactor.redact_value([content])
    assert gaps.busy_s <= GAP_S


@pytest.mark.parametrize("part", ["question", "answer", "arguments", "tools", "field"])
async def test_what_was_not_redacted_in_time_is_not_stored(tmp_path: Path, empty_database: Path, part: str) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    store = Store(sqlite_url(tmp_path))
    recorder = Recorder(store, RecorderSettings(redact=["email", SLOW]))
    recorder.redaction = Redactor(["email", SLOW], timeout_s=0.05)
    recorder.find._redaction = recorder.redaction
    await recorder.start()
    talk, ids = Talk(recorder), [50_000 + ord(c) for c in SECRET]
    more: dict[str, Any] = {}
    asked, said = user("Who is anna@example.org?"), assistant("nobody")
    if part == "question":
        asked = user(SECRET)
    elif part == "answer":
        said = assistant(SECRET)
    elif part == "arguments":
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": SECRET})}}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
    elif part == "tools":
        more["tools"] = [{"type": "function", "function": {"name": "f", "description": SECRET}}]
    else:
        more["rest"] = {"metadata": {"a": SECRET}}
    try:
        sampled = choice(said, token_ids=ids, logprobs=[-0.5] * len(ids))
        async with loop_gaps() as gaps:
            made = await talk.call([asked], [sampled], prompt_token_ids=ids, **more)
        assert gaps.busy_s <= GAP_S
        other = await talk.call([user("hello")], "hi")
        view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
        sound = await transcripts.load_trajectory(store, other.attribution.trajectory.id, with_tokens=True)
    finally:
        await recorder.stop()
        await store.close()
    [one] = view.calls
    assert (one.state.value, one.messages, one.prompt_token_ids) == ("complete", [], None)
    assert (one.choices[0].token_ids, one.choices[0].logprobs, one.choices[0].message) == (None, None, None)
    assert one.choices[0].untrainable_reason == "redaction_timeout"
    assert sound.calls[0].choices[0].untrainable_reason is None
    assert recorder.stats().redaction_timeouts >= 1
    for file in tmp_path.iterdir():
        held = file.read_bytes()
        assert SECRET.encode() not in held
        assert b"xxxxxxxxxxxxxxxx" not in held
        assert pack_ids(ids) not in held
        assert b"anna@example.org" not in held


async def test_two_conversations_that_were_not_redacted_in_time_are_not_joined(
    tmp_path: Path, empty_database: Path
) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    store = Store(sqlite_url(tmp_path))
    recorder = Recorder(store, RecorderSettings(redact=[SLOW]))
    recorder.redaction = Redactor([SLOW], timeout_s=0.05)
    recorder.find._redaction = recorder.redaction
    await recorder.start()
    try:
        talk = Talk(recorder)
        first = await talk.call([user(SECRET)], "one")
        again = await talk.call([user(SECRET), assistant("one"), user("and?")], "two")
        retry = await talk.call([user(SECRET + "!")], "three", retry_count=1)
    finally:
        await recorder.stop()
        await store.close()
    homes = {t.attribution.trajectory.id for t in (first, again, retry)}
    assert len(homes) == 3
    assert {t.attribution.confidence for t in (first, again, retry)} == {Confidence.NEW}
    assert {t.attribution.parent for t in (first, again, retry)} == {None}


def test_a_value_whose_redaction_did_not_finish_is_empty() -> None:
    redactor = Redactor([SLOW], timeout_s=0.02)
    assert redactor.text(SECRET) == MARK
    assert redactor.value({"a": SECRET}) == {}
    assert redactor.value([SECRET]) == []
    assert redactor.messages([user(SECRET)]) == []
    assert redactor.timeouts == 4
    assert redactor.text("hello") == "hello"


def test_a_match_behind_escapes_that_cannot_be_decoded_hides_nothing() -> None:
    redactor = Redactor(["email", "credit_card"])
    assert redactor.text('{"to": "anna\\u0040example.org", "cut') == "[redacted:email]"
    assert redactor.text("a \\u0041 b") == "a \\u0041 b"
    deep = "[" * 5000 + '"anna\\u0040example.org"' + "]" * 5000
    assert redactor.text(deep) == "[redacted:email]"
    long = json.dumps({"pad": "x" * (1 << 21), "to": "anna@example.org"}).replace("@", "\\u0040")
    assert redactor.text(long) == "[redacted:email]"
