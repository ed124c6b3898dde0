"""Hostile replies about criteria: no reward outside its range, on the wrong run, or for a run that was not judged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.errors import JudgeUsage
from judge.llm.group_text import PromptTrajectory
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.rewards.code_checks import CodeJudges
from judge.rewards.rubrics import RubricJudge, RubricResult, RubricSubject, StoredVerdicts
from judge.settings import JudgeSettings
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from tests.judge.judge_server import Json
from tests.judge.rubric_replies import criteria, response
from tests.proxy.fuzzed import TIMEOUT_S, fuzzed
from tests.trainer.building import trajectory

RUBRIC = [
    {"id": "a", "text": "one", "weight": 2},
    {"id": "b", "text": "two"},
    {"id": "c", "text": "bad", "weight": -1},
    {"id": "named", "text": "by code", "check": {"rule": "regex", "value": "^(first|third)$"}},
]
TEXTS = {"one": "a", "two": "b", "bad": "c"}
NAMES = ("first", "second", "third")
UNJUDGED = "unjudged"

entry_spoilt = st.sampled_from(["drop", "twice", "strange", "foreign", "word", "number", "mute", "bare"])
text_spoilt = st.sampled_from(["cut", "fence", "think", "open", "draft", "tail", "array", "late"])
plans = st.fixed_dictionaries({id_: st.booleans() for id_ in "abc"})
spoilings = st.lists(entry_spoilt | text_spoilt, max_size=2)
replies = st.tuples(plans, st.tuples(spoilings, spoilings), st.none() | st.text(max_size=80))
cases = st.fixed_dictionaries(dict.fromkeys(NAMES, replies))


def spoil_entries(entries: list[Json], how: list[str], foreign: str) -> list[Any]:
    """The entries as a confused judge writes them: never another clear verdict on all of them."""
    spoilt: list[Any] = [dict(entry) for entry in entries]
    if "drop" in how:
        spoilt.pop()
    if "twice" in how and spoilt:
        spoilt.append(spoilt[0] | {"met": not spoilt[0]["met"]})
    if "strange" in how:
        spoilt.append({"id": "c-00000000", "reason": "so", "met": True})
    if "foreign" in how and spoilt:
        spoilt[-1] |= {"id": foreign}
    for word, met in (("word", "true"), ("number", 1), ("mute", None)):
        if word in how and spoilt:
            spoilt[0] |= {"met": met}
    return [entry["id"] for entry in spoilt] if "bare" in how else spoilt


def spoil_text(text: str, other: str, how: list[str]) -> str:
    """The reply as it may be sent; `other` says the opposite."""
    wraps = {
        "fence": f"```json\n{text}\n```", "think": f"<think>{other}</think>{text}", "open": f"<think>{text}",
        "draft": f"{text}\n{other}", "tail": f"{text}\n{other[:25]}", "array": f"[{text}]",
        "late": f"{other}</think>{text}", "cut": text[: len(text) // 2],
    }  # fmt: skip
    for one in how:
        text = wraps.get(one, text)
    return text


class Scripted:
    """A judge that says of each run what the case has for it, the second time as much."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._case = case
        self._times = dict.fromkeys(case, 0)
        self._seen: list[str] = []

    async def ask(self, messages: Messages) -> JudgeAnswer:
        """The reply to a prompt, by the run that it shows."""
        body: Json = {"messages": [dict(message) for message in messages]}
        run, ids = response(body), {id_: TEXTS[text] for id_, text in criteria(body).items()}
        plan, spoilings, instead = self._case[run]
        how = spoilings[self._times[run]]
        self._times[run] += 1
        foreign = self._seen[0] if self._seen else "c-ffffffff"
        self._seen = list(ids)
        return JudgeAnswer(instead or self._reply(plan, ids, how, foreign), "stop", None, JudgeUsage(1, 1))

    def _reply(self, plan: dict[str, bool], ids: dict[str, str], how: list[str], foreign: str) -> str:
        entries = [{"id": id_, "reason": "so", "met": plan[own]} for id_, own in ids.items()]
        opposite = [entry | {"met": not entry["met"]} for entry in entries]
        text = json.dumps({"criteria": spoil_entries(entries, how, foreign)})
        return spoil_text(text, json.dumps({"criteria": opposite}), how)


def subject(name: str, said: str, rubric: Any) -> RubricSubject:
    """A run of one answer."""
    messages = [{"role": "assistant", "content": said}]
    return RubricSubject(name, PromptTrajectory(name, messages), rubric, trajectory(id=name, messages=messages))


class Judging:
    """A store without verdicts, and judging beside it."""

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        self._runner = runner
        self._store = store

    def judge(self, case: dict[str, Any]) -> RubricResult:
        """What came of the case's runs, and of one that has no criteria."""
        return self._runner.run(self._judge(case))

    async def _judge(self, case: dict[str, Any]) -> RubricResult:
        settings = JudgeSettings(model="openai/judge")
        asks = {False: Scripted(case).ask}
        known = StoredVerdicts(settings, Project(self._store, "default"), keep=False)
        judge = RubricJudge(settings, asks, CodeJudges(settings), known)
        runs = [subject(name, name, RUBRIC) for name in case]
        runs.append(subject(UNJUDGED, NAMES[0], None))
        return await judge.judge(runs, frozenset(), evidence=False)


@pytest.fixture(scope="module")
def judging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judging]:
    with asyncio.Runner() as runner:
        folder = tmp_path_factory.mktemp("store")
        store = runner.run(open_store(folder, RecorderSettings(), migrate=True))
        yield Judging(runner, store)
        runner.run(store.close())


def worth(name: str, plan: dict[str, bool]) -> float:
    return min(max((2 * plan["a"] + plan["b"] - plan["c"] + (name != "second")) / 4, 0.0), 1.0)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@fuzzed
@given(cases)
def test_a_hostile_reply_earns_what_it_clearly_says_of_its_own_run_or_nothing(
    judging: Judging, case: dict[str, Any]
) -> None:
    found = judging.judge(case)
    assert set(found.parts) == {*NAMES, UNJUDGED}
    assert found.parts[UNJUDGED].value is None
    for name, (plan, _, instead) in case.items():
        part = found.parts[name]
        if part.value is None:
            assert part.explanation
            continue
        assert instead is None or instead == ""
        assert part.value == worth(name, plan)
        assert part.extra == {id_: float(met) for id_, met in plan.items()} | {"named": float(name != "second")}
    clean = [name for name, (_, spoilings, instead) in case.items() if not spoilings[0] and not instead]
    assert all(found.parts[name].value is not None for name in clean)
