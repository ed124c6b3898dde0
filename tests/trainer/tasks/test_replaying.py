"""Recorded runs as scenarios that are replayed: what they hold, and a campaign of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from proxy.cli import cli
from recorder.messages.redaction import Redactor
from recorder.states import Origin
from recorder.store.database import Project
from recorder.store.schema import attempts, trajectories
from recorder.views.trajectories.transcripts import load_trajectory
from tests.stores import Stores, stored_in
from tests.trainer.building import call, choice, trajectory
from tests.trainer.ring import ALIAS, PROJECT, RecordedProgress, Ring, Script, write_user_folder
from tests.trainer.traffic import SYSTEM, asked
from trainer.agents.replay import canonical_arguments
from trainer.progress import Notice
from trainer.tasks import scenarios, traffic
from trainer.tasks.traffic import SkipReason

FIND = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


def asks(name: str, arguments: str, id_: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def answers(content: str, id_: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


@pytest.fixture
async def ring(tmp_path: Path, stores: Stores) -> AsyncIterator[Ring]:
    with stores.made(tmp_path / "data") as settings:
        async with Ring.running(tmp_path / "data", Script(), settings) as running:
            yield running


async def test_a_scenario_holds_what_the_run_was_asked_and_what_its_tools_answered(ring: Ring) -> None:
    run = await asked(
        ring,
        "Where is order 7?",
        [asks("find", '{"id": 7, "all": true}'), answers("ann@example.org has it")],
        [asks("find", '{"all":true,"id":7}', "c2"), answers("shipped", "c2")],
        tools=[FIND],
    )
    redaction = Redactor(["email"])
    tasks = await traffic.traffic_tasks(
        Project(ring.store, PROJECT), ALIAS, [], redaction, runs=9, opening=traffic.opening_key
    )
    (found,) = traffic.replay_scenarios(tasks.found, redaction)
    assert found.id == run
    assert found.input["messages"] == [SYSTEM, {"role": "user", "content": "Where is order 7?"}]
    assert found.input["tools"] == [FIND]
    key = canonical_arguments({"id": 7, "all": True})
    assert found.input["results"] == [
        {"name": "find", "arguments": key, "content": "[redacted:email] has it"},
        {"name": "find", "arguments": key, "content": "shipped"},
    ]
    assert json.loads(scenarios.scenario_line(found))["input"] == found.input


async def test_ids_of_tool_calls_that_are_used_again_keep_their_own_results(ring: Ring) -> None:
    run = await asked(
        ring, "Where?", [asks("a", "{}"), answers("one")], [asks("b", "{}"), answers("two")], tools=[FIND]
    )
    found = traffic.tool_results((await load_trajectory(ring.store, run)).calls)
    assert [(one["name"], one["content"]) for one in found] == [("a", "one"), ("b", "two")]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([SYSTEM, {"role": "user", "content": "a"}, {"role": "assistant"}, {"role": "user", "content": "b"}], "a\nb"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], SkipReason.NOT_TEXT),
        ([SYSTEM], SkipReason.EMPTY),
    ],
)
def test_an_opening_may_have_any_messages_of_text(messages: list[Any], expected: str) -> None:
    run = trajectory(call(1, [1], choice([2]), messages=messages), main_path=[("call_1", 0)])
    assert traffic.opening_key(run) == expected


@pytest.mark.slow
async def test_a_replayed_campaign_needs_no_agent_and_says_where_its_runs_come_from(ring: Ring, tmp_path: Path) -> None:
    for number in range(4):
        await asked(ring, f"train {number}")
    out = tmp_path / "replay.jsonl"
    arguments = ["scenarios", "from-traffic", "--alias", ALIAS, "--replay", "--out", str(out), "--yes"]
    shown = await asyncio.to_thread(
        CliRunner(env=stored_in(ring.recording)).invoke, cli, [*arguments, "--data", str(tmp_path / "data")]
    )
    assert shown.exit_code == 0, shown.output
    assert f"hone train --scenarios {out} --alias {ALIAS} --replay" in shown.output
    told = RecordedProgress()
    settings = {"replay": True, "scenarios": out, "scenarios_per_step": 2, "group_size": 4, "steps": 1}
    await ring.train(settings, told)
    (step,) = told.steps()
    assert (step.attempts, step.errored) == (8, 0)
    async with ring.store.read() as conn:
        runs = await conn.execute(select(trajectories.c.origin).where(trajectories.c.address_group != ""))
        assert {origin for (origin,) in runs} == {Origin.REPLAY}
        assert {state for (state,) in await conn.execute(select(attempts.c.state))} == {"done"}


# As the replay's own error is told: a ring's model asks for no tools.
ENDS_UNANSWERED = """
from my_agent import ask

class NotRecorded(Exception):
    __module__ = "trainer.agents.replay"

def run(task):
    answer = ask(task)
    if "2" in task.input:
        raise NotRecorded("the record has no answer to find({})")
    return answer
"""


@pytest.mark.slow
async def test_attempts_that_the_record_cannot_answer_are_errored_whatever_else_is_judged_and_counted(
    ring: Ring, tmp_path: Path
) -> None:
    user = write_user_folder(tmp_path / "user")
    (tmp_path / "user" / "unanswered.py").write_text(ENDS_UNANSWERED)
    told = RecordedProgress()
    settings = {"agent": "unanswered:run", "scenarios_per_step": 4, "steps": 1, "on_agent_error": "judge"}
    await ring.train({**user, "val_scenarios": None, **settings}, told)
    (step,) = told.steps()
    assert (step.attempts, step.errored) == (16, 4)
    said = [event.text for event in told.events if isinstance(event, Notice)]
    assert "4 of 16 attempts ended at a tool call without a recorded result" in said
    async with ring.store.read() as conn:
        ended = select(trajectories.c.state).where(trajectories.c.end_reason == "not_recorded")
        assert list((await conn.execute(ended)).scalars()) == ["errored"] * 4
