"""What the gate asks an engine, against one that answers as it is told, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.engine.answers import ANSWER_TOKENS, EngineQuestion
from proxy.engine.replica import Replica
from proxy.errors import EngineUnreachable
from proxy.gate.sanity import DISTANCES, QUESTIONS, SanityBounds, SanityResult, ask_both, check_sanity
from tests.proxy.scripted_engine import ScriptedEngine, Speech

BOUNDS = SanityBounds(kl_max=2.0, length_times=2.0)
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
QUESTION = EngineQuestion([{"role": "user", "content": "Where is my parcel?"}], TOOLS)
NEW, OLD = "helpdesk@2-abc", "helpdesk@1-abc"
AGAINST = {"live": OLD, "base": "base"}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    """An engine that holds two versions."""
    engine = ScriptedEngine()
    await engine.start()
    engine.adapters = {OLD: "/old", NEW: "/new"}
    yield engine
    await engine.stop()


async def checked(engine: ScriptedEngine) -> SanityResult:
    replica = Replica(engine.url, None)
    try:
        pairs = await ask_both(replica, [QUESTION] * QUESTIONS, NEW, OLD)
        return await check_sanity(replica, pairs, AGAINST, BOUNDS)
    finally:
        await replica.close()


async def test_both_versions_are_asked_every_question_and_distances_are_asked_one_at_a_time(
    engine: ScriptedEngine,
) -> None:
    found = await checked(engine)
    assert found.fault is None
    assert found.figures["kl_live"] == found.figures["kl_base"] == pytest.approx(0.0)
    assert engine.calls.count(("chat", NEW)) == engine.calls.count(("chat", OLD)) == QUESTIONS
    assert engine.calls.count(("far", OLD)) == engine.calls.count(("far", "base")) == DISTANCES
    assert engine.asked_at_once == 1


@pytest.mark.parametrize(
    ("speech", "code"),
    [
        (Speech(logprob=None), "not_finite"),
        (Speech(logprob=-9999.0), "not_finite"),
        (Speech(status=500), "not_finite"),
        (Speech(tokens=0), "not_finite"),
        (Speech(tokens=120), "length"),
        (Speech(logprob=-0.0001), "entropy"),
        (Speech(to_others=-9.0), "kl"),
        (Speech(content="<tool_call>{"), "tool_calls_broken"),
        (Speech(calls='["a"'), "tool_calls_broken"),
    ],
)
async def test_a_version_that_answers_badly_is_found_by_how(engine: ScriptedEngine, speech: Speech, code: str) -> None:
    engine.speech = {"helpdesk@2": speech, "helpdesk@1": Speech(calls='{"order": 7}')}
    fault = (await checked(engine)).fault
    assert fault is not None
    assert fault[0] == code


async def test_a_version_that_never_calls_its_tools_is_found(engine: ScriptedEngine) -> None:
    engine.speech = {"helpdesk@1": Speech(calls="{}")}
    fault = (await checked(engine)).fault
    assert fault is not None
    assert fault[0] == "tool_calls_lost"


async def test_what_the_live_version_cannot_answer_either_says_nothing(engine: ScriptedEngine) -> None:
    engine.speech = {"helpdesk@2": Speech(status=400), "helpdesk@1": Speech(status=400)}
    assert await checked(engine) == SanityResult()
    engine.speech = {"helpdesk@2": Speech(logprob=None), "helpdesk@1": Speech(logprob=None)}
    assert await checked(engine) == SanityResult()


async def test_an_engine_that_is_gone_is_no_fault_of_the_versions(engine: ScriptedEngine) -> None:
    await engine.stop()
    with pytest.raises(EngineUnreachable):
        await checked(engine)


def test_a_question_is_asked_plainly_and_its_answer_is_bounded() -> None:
    body = EngineQuestion(QUESTION.messages, None, max_tokens=10_000).body("m")
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (1.0, 1.0, ANSWER_TOKENS)
    assert "tools" not in body
    assert EngineQuestion(QUESTION.messages, TOOLS, max_tokens=20).body("m") | {
        "max_tokens": 20,
        "tools": TOOLS,
    } == EngineQuestion(QUESTION.messages, TOOLS, max_tokens=20).body("m")


async def test_answers_to_the_same_first_turns_are_asked_for_together(engine: ScriptedEngine) -> None:
    other = EngineQuestion([{"role": "user", "content": "Where is my other parcel?"}])
    replica = Replica(engine.url, None)
    pairs = await ask_both(replica, [QUESTION, other, QUESTION, QUESTION], NEW, OLD)
    await replica.close()
    assert [pair.question for pair in pairs] == [QUESTION] * 3 + [other]
    assert engine.calls.count(("chat", NEW)) == engine.calls.count(("chat", OLD)) == 4
    assert engine.chats == 2 * 2


async def test_all_answers_of_a_request_that_an_engine_refuses_are_missing(engine: ScriptedEngine) -> None:
    engine.speech = {"helpdesk@2": Speech(status=500)}
    replica = Replica(engine.url, None)
    pairs = await ask_both(replica, [QUESTION] * 2, NEW, OLD)
    await replica.close()
    assert [pair.candidate for pair in pairs] == [None, None]
