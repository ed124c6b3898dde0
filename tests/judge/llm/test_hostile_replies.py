"""Replies that nobody would think of, many of them: each is read as one clear verdict or refused.

`HONE_FUZZ_CASES` says how many (`tests.proxy.fuzzed`).
"""

import asyncio
import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.errors import JudgeUnanswered, JudgeUsage, ReplyRefused
from judge.llm.group_text import PromptTrajectory
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.llm.prompt import build_prompt
from judge.llm.reply_reader import read_reply
from judge.llm.ruler import rank_group
from tests.proxy.fuzzed import TIMEOUT_S, fuzzed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]

IDS = ("t-aa", "t-bb", "t-cc")
SCORES = st.one_of(
    st.floats(), st.integers(), st.booleans(), st.none(), st.sampled_from(["8/10", "40 %", "1e9", "0.5", "", "9" * 500])
)
ENTRIES = st.fixed_dictionaries(
    {"id": st.sampled_from([*IDS, " t-aa ", "t-dd", ""])},
    optional={"score": SCORES | st.floats(0, 1), "explanation": st.text(max_size=20) | st.none()},
)
VERDICTS = st.builds(lambda entries: json.dumps({"trajectories": entries}), st.lists(ENTRIES, max_size=4))
GOOD = st.builds(
    lambda scores, seed: json.dumps(
        {"trajectories": random.Random(seed).sample([{"id": n, "score": s} for n, s in scores], len(scores))}
    ),
    st.tuples(*(st.tuples(st.just(name), st.floats(0, 1)) for name in IDS)),
    st.integers(0, 99),
)
PIECES = st.one_of(
    GOOD,
    VERDICTS,
    st.builds(lambda text, at: text[:at], GOOD, st.integers(0, 200)),
    st.builds(lambda text, at: text[at:], GOOD, st.integers(0, 200)),
    st.sampled_from(["<think>", "</think>", "```json\n", "```", "{", "}", "[", "]", ",", '"', "\\", "NaN", "\ud800"]),
    st.text(max_size=20),
)
REPLIES = st.lists(PIECES, max_size=5).map("".join)


@fuzzed
@given(REPLIES)
def test_every_run_has_one_score_in_range_or_the_reply_is_refused(reply: str) -> None:
    try:
        read = read_reply(reply, IDS)
    except ReplyRefused:
        return
    assert list(read) == list(IDS)
    assert all(math.isfinite(verdict.score) and 0 <= verdict.score <= 1 for verdict in read.values())


@fuzzed
@given(GOOD, REPLIES, st.booleans())
def test_what_stands_beside_a_verdict_changes_no_score(good: str, beside: str, before: bool) -> None:
    said = {entry["id"]: entry["score"] for entry in json.loads(good)["trajectories"]}
    try:
        read = read_reply(f"{beside}\n{good}" if before else f"{good}\n{beside}", IDS)
    except ReplyRefused:
        return
    if not before and "</think>" in beside:
        return  # then the verdict was a thought, and what follows is another
    assert {name: verdict.score for name, verdict in read.items()} == said


@fuzzed
@given(st.lists(REPLIES, min_size=2, max_size=2), st.integers(2, 60), st.integers(0, 2**31 - 1))
def test_rewards_go_to_the_runs_that_were_judged_and_to_no_others(replies: list[str], runs: int, seed: int) -> None:
    group = [
        PromptTrajectory(
            str(n), [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"answer {n % 50}" * 9}]
        )
        for n in range(runs)
    ]
    prompt = build_prompt(group, rubric="Be right.", seed=seed, max_chars=8000)
    # The replies name ids as the judge was given them, so that some are right.
    names = list(prompt.ids)
    told = [_renamed(reply, names) for reply in replies]

    async def ask(messages: Messages) -> JudgeAnswer:
        return JudgeAnswer(told.pop(0), "stop", None, JudgeUsage())

    try:
        ruling = asyncio.run(rank_group(prompt, ask))
    except JudgeUnanswered:
        return
    shown = {member for members in prompt.ids.values() for member in members}
    assert set(ruling.verdicts) == shown == {run.id for run in group} - set(prompt.too_long)
    assert all(0 <= verdict.score <= 1 for verdict in ruling.verdicts.values())


def _renamed(reply: str, names: list[str]) -> str:
    for old, new in zip(IDS, names, strict=False):
        reply = reply.replace(old, new)
    return reply
