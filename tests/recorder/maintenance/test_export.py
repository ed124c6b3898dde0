"""Exported lines: one a call with every detail, or one a completed trajectory for fine-tuning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from recorder.capture.recorder import Recorder
from recorder.maintenance import export
from recorder.messages.calls import Address, SamplingParameters
from recorder.registry import versions
from recorder.settings import RecorderSettings
from recorder.states import CallKind, CallState, Origin, Purpose
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from tests.recorder.rows import Rows
from tests.recorder.score_rows import new_score
from tests.recorder.talk import PROJECT, Talk, assistant, choice, tool_result, tool_turn, user

FIELDS = {
    "call_id",
    "parent_call_id",
    "trajectory_id",
    "trajectory_external_id",
    "group_id",
    "attribution",
    "dialect",
    "endpoint",
    "model",
    "version",
    "status",
    "turn_kind",
    "purpose",
    "origin",
    "request",
    "response",
    "prompt_token_ids",
    "choices",
    "tool_calls",
    "sampling",
    "usage",
    "reward",
    "parts",
    "started_at",
    "timings",
}


@pytest.fixture
async def recorder(store: Store) -> Any:
    started = Recorder(store, RecorderSettings())
    await started.start()
    yield started
    await started.stop()


async def raw(store: Store, **asked: Any) -> list[dict[str, Any]]:
    lines = [line async for line in export.raw_lines(Project(store, PROJECT), **asked)]
    return [json.loads(json.dumps(line)) for line in lines]  # every line is JSON


async def test_a_raw_line_has_every_field(store: Store, talk: Talk, rows: Rows) -> None:
    alias = await rows.alias("helpdesk")
    (base,) = await versions.list_versions(store, alias.id)
    at = Address(group="g", trajectory="run", purpose=Purpose.VAL)
    tools = [{"type": "function", "function": {"name": "find"}}]
    first = await talk.call([user("?")], tool_turn("id-1"), at, tools=tools, version_id=base.id, alias_id=alias.id)
    history = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    second = await talk.call(
        history,
        [choice(assistant("done"), token_ids=[5, 6], logprobs=[-0.5, -0.25])],
        at,
        tools=tools,
        response_format={"type": "text"},
        rest={"temperature": 0.7, "user": "u"},
        sampling=SamplingParameters(temperature=0.7),
        prompt_token_ids=[1, 2, 3, 4],
        response_meta={"system_fingerprint": "fp"},
    )
    lines = await raw(store)
    assert [line["call_id"] for line in lines] == [first.call_id, second.call_id]
    assert all(line.keys() == FIELDS for line in lines)
    line = lines[1]
    assert line["parent_call_id"] == first.call_id
    assert line["trajectory_id"] == second.attribution.trajectory.id
    assert line["trajectory_external_id"] == "run"
    assert line["group_id"] == second.attribution.trajectory.group_id
    assert line["attribution"] == {"source": "path", "confidence": "stated"}
    assert (line["dialect"], line["endpoint"], line["model"]) == ("chat", "/v1/chat/completions", "helpdesk")
    assert (lines[0]["version"], line["version"]) == ("helpdesk@0", None)
    assert (line["status"], line["turn_kind"], line["purpose"], line["origin"]) == ("complete", "main", "val", "live")
    assert line["request"] == {
        "temperature": 0.7,
        "user": "u",
        "messages": history,
        "tools": tools,
        "response_format": {"type": "text"},
    }
    assert line["response"] == {
        "system_fingerprint": "fp",
        "choices": [{"index": 0, "message": assistant("done"), "finish_reason": "stop"}],
        "http_status": 200,
    }
    assert line["prompt_token_ids"] == [1, 2, 3, 4]
    assert line["choices"] == [
        {"token_ids": [5, 6], "logprobs": [-0.5, -0.25], "finish_reason": "stop", "trainable": False}
    ]
    assert line["sampling"]["temperature"] == 0.7
    assert line["usage"] == {"prompt_tokens": 4, "completion_tokens": 2}
    assert (line["reward"], line["parts"]) == (None, [])
    assert line["started_at"] == second.started_at
    assert line["timings"] == {"first_token_s": 0.0, "total_s": 0.0}


async def test_the_reward_of_the_current_score_is_exported_with_what_it_is_made_of(
    store: Store, talk: Talk, rows: Rows
) -> None:
    from recorder.queue.claims import claim_for_judging
    from recorder.queue.judging.scores import NewPart, record_score

    made = [
        await talk.call([user("?")], f"answer {n}", Address(group="g", trajectory=str(n), group_size=2, done=True))
        for n in range(2)
    ]
    ids = [m.attribution.trajectory.id for m in made]
    claim = await claim_for_judging(Project(store, PROJECT), "judge", 60.0)
    assert claim is not None
    parts = [NewPart(id_, "reward", float(n), None, "because") for n, id_ in enumerate(ids)]
    parts += [NewPart(ids[0], "checked", 0.0, 1.0, "wrong order"), NewPart(ids[0], "checked.words", 12.0)]
    await record_score(store, claim, new_score(recipe_hash="recipe", parts=parts))
    lines = {line["trajectory_id"]: line for line in await raw(store)}
    assert {id_: line["reward"] for id_, line in lines.items()} == dict(zip(ids, (0.0, 1.0), strict=True))
    assert lines[ids[0]]["parts"] == [
        {"part": "checked", "value": 0.0, "weight": 1.0, "explanation": "wrong order", "unasked": False},
        {"part": "checked.words", "value": 12.0, "weight": None, "explanation": None, "unasked": False},
        {"part": "reward", "value": 0.0, "weight": None, "explanation": "because", "unasked": False},
    ]


async def test_broken_and_superseded_calls_say_so(store: Store, talk: Talk) -> None:
    at = Address(trajectory="run")
    gone = [choice(assistant("par"), finish_reason=None)]
    await talk.call([user("?")], gone, at, state=CallState.ABORTED)
    await talk.call([user("?")], "whole", at, retry_count=1)
    await talk.call([user("??")], [], at, state=CallState.ERRORED, error="engine died", http_status=502)
    await talk.call([user("title")], "T", replace(at, call_kind=CallKind.AUX))
    lines = await raw(store)
    assert [line["status"] for line in lines] == ["superseded", "complete", "errored", "complete"]
    assert [line["turn_kind"] for line in lines] == ["main", "main", "main", "aux"]
    assert lines[2]["response"] == {"choices": [], "http_status": 502, "error": "engine died"}
    assert [[c["trainable"] for c in line["choices"]] for line in lines] == [[False], [True], [], [False]]


async def test_a_split_call_is_one_line(store: Store, talk: Talk) -> None:
    several = [choice(assistant(text), index) for index, text in enumerate("abc")]
    made = await talk.call([user("?")], several, Address(trajectory="run", done=True))
    lines = await raw(store)
    assert [line["call_id"] for line in lines] == [made.call_id]
    assert len(lines[0]["choices"]) == 3


async def test_many_trajectories_come_in_pages_and_in_order(
    store: Store, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PAGE", 3)
    monkeypatch.setattr(export, "ID_PAGE", 5)
    made = [await talk.call([user(f"{n}")], "!", started_at=1000.0 + n) for n in range(10)]
    homes = sorted(m.attribution.trajectory.id for m in made)
    assert [line["trajectory_id"] for line in await raw(store)] == homes
    assert {line["started_at"] for line in await raw(store, since=1008.0)} == {1008.0, 1009.0}
    assert [line["trajectory_id"] for line in await raw(store, trajectory_id=homes[4])] == [homes[4]]
    assert [line async for line in export.raw_lines(Project(store, "other"))] == []


async def test_fine_tuning_lines_are_completed_conversations(store: Store, talk: Talk) -> None:
    tools = [{"type": "function", "function": {"name": "find"}}]
    at = Address(trajectory="run")
    said = tool_turn("id-1") | {"reasoning_content": "hm", "refusal": None}
    await talk.call([user("?")], said, at, tools=tools)
    history = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    await talk.call(history, "done", replace(at, done=True), tools=tools)
    await talk.call([user("no tools")], "fine", Address(trajectory="plain", done=True))
    await talk.call([user("still open")], "?", Address(trajectory="open"))
    await talk.call([user("broken")], [], Address(trajectory="broken", done=True), state=CallState.ERRORED)
    counts = export.ExportCounts()
    lines = [line async for line in export.openai_lines(Project(store, PROJECT), counts=counts)]
    assert counts.sentence() == "2 trajectories exported; excluded: 2 not completed (open)."
    called = {k: v for k, v in tool_turn("id-1").items() if v is not None}
    assert lines == [
        {"messages": [user("?"), called, tool_result("id-1"), assistant("done")], "tools": tools},
        {"messages": [user("no tools"), assistant("fine")]},
    ]


HELD_OUT = {
    ("val", "campaign"): "held-out (purpose val)",
    ("eval", "campaign"): "held-out (purpose eval)",
    ("val", "live"): "held-out (purpose val)",
    ("eval", "live"): "held-out (purpose eval)",
    ("none", "live"): "not for training (purpose none)",
    ("eval", "shadow"): "gate (--include gate)",
    ("train", "shadow"): "shadow (--include shadow)",
    ("train", "replay"): "replay (--include replay)",
    ("eval", "replay"): "replay (--include replay)",
    ("train", "import"): "import (--include import)",
    ("val", "import"): "import (--include import)",
}


async def planted(store: Store, talk: Talk) -> None:
    """One completed trajectory of each purpose and origin; its only message says which."""
    for purpose in Purpose:
        for origin in Origin:
            name = f"{purpose.value}-{origin.value}"
            made = await talk.call([user(name)], "!", Address(trajectory=name, purpose=purpose, done=True))
            async with store.write() as conn:
                row = trajectories.c.id == made.attribution.trajectory.id
                await conn.execute(update(trajectories).where(row).values(origin=origin))


async def exported(store: Store, *include: str) -> tuple[list[str], export.ExportCounts]:
    counts = export.ExportCounts()
    lines = export.openai_lines(Project(store, PROJECT), include=include, counts=counts)
    return [line["messages"][0]["content"] async for line in lines], counts


async def test_fine_tuning_data_hold_nothing_that_measures_versions_and_only_what_is_named(
    store: Store, talk: Talk
) -> None:
    await planted(store, talk)
    names, counts = await exported(store)
    assert names == ["train-live", "train-campaign"]
    assert counts.exported == 2
    assert set(HELD_OUT.values()) == set(counts.excluded)
    assert counts.excluded.total() == len(Purpose) * len(Origin) - 2

    assert set((await exported(store, "shadow"))[0]) == {"train-live", "train-campaign", "train-shadow"}
    assert set((await exported(store, "gate"))[0]) == {"train-live", "train-campaign", "eval-shadow"}
    names, counts = await exported(store, *export.MORE)
    assert set(names) == {f"train-{origin.value}" for origin in Origin} | {"eval-shadow"}
    assert all("--include" not in reason for reason in counts.excluded)


async def test_fine_tuning_data_can_be_narrowed_to_good_trajectories(store: Store, talk: Talk) -> None:
    from recorder.queue.claims import claim_for_judging
    from recorder.queue.judging.scores import NewPart, record_score

    at = [Address(group="g", trajectory=str(n), group_size=2, done=True) for n in range(2)]
    ids = [(await talk.call([user("?")], f"answer {n}", one)).attribution.trajectory.id for n, one in enumerate(at)]
    await talk.call([user("?")], "not scored", Address(trajectory="alone", done=True))
    claim = await claim_for_judging(Project(store, PROJECT), "judge", 60.0)
    assert claim is not None
    rewards = [NewPart(id_, "reward", float(n)) for n, id_ in enumerate(ids)]
    await record_score(store, claim, new_score(recipe_hash="recipe", parts=rewards))
    counts = export.ExportCounts()
    lines = export.openai_lines(Project(store, PROJECT), min_reward=1.0, counts=counts)
    assert [line["messages"][-1]["content"] async for line in lines] == ["answer 1"]
    assert counts.excluded == {"below --min-reward": 1, "without a reward": 1}
