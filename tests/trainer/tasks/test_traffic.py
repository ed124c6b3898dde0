"""Tasks from recorded runs: which give one, which are one, and what is written of them."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import cli
from recorder.curation.datasets import add_to_dataset, create_dataset
from recorder.messages.redaction import Redactor
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.store.database import Project
from recorder.store.schema import trajectories
from tests.recorder.rows import Rows
from tests.stores import Stores
from tests.trainer.building import call, choice, trajectory
from tests.trainer.ring import ALIAS, PROJECT, Ring, Script
from tests.trainer.traffic import asked
from trainer.errors import NoTasks
from trainer.tasks import scenarios, traffic
from trainer.tasks.conditions import parse_condition
from trainer.tasks.traffic import SkipReason, TaskCollector, TrafficTasks

USER = {"role": "user", "content": "Where is order 4821?"}


@pytest.fixture
async def ring(tmp_path: Path, stores: Stores) -> AsyncIterator[Ring]:
    with stores.made(tmp_path / "data") as settings:
        async with Ring.running(tmp_path / "data", Script(judge=False), settings) as running:
            yield running


async def tasks(ring: Ring, *wanted: str, redact: Sequence[str] = ()) -> TrafficTasks:
    conditions = [parse_condition(text) for text in wanted]
    return await traffic.traffic_tasks(Project(ring.store, PROJECT), ALIAS, conditions, Redactor(redact), runs=100)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER], USER["content"]),
        ([{"role": "system", "content": "You help."}, {"role": "developer", "content": "x"}, USER], USER["content"]),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "a\nb"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], SkipReason.NOT_TEXT),
        ([{"role": "user", "content": None}], SkipReason.NOT_TEXT),
        ([{"role": "user", "content": " "}], SkipReason.EMPTY),
        ([USER, {"role": "assistant", "content": "?"}, USER], SkipReason.SEVERAL_MESSAGES),
        ([{"role": "assistant", "content": "hello"}], SkipReason.SEVERAL_MESSAGES),
        ([], SkipReason.SEVERAL_MESSAGES),
    ],
)
def test_a_task_is_the_one_user_message_that_a_run_began_with(messages: list[Any], expected: str) -> None:
    run = trajectory(call(1, [1], choice([2]), messages=messages), main_path=[("call_1", 0)])
    assert traffic.opening_text(run) == expected


def test_a_run_that_was_never_answered_gives_no_task() -> None:
    assert traffic.opening_text(trajectory(call(1, [1], messages=[USER]))) == SkipReason.NO_OPENING


def joined(*texts: str) -> list[tuple[str, int]]:
    tasks = TaskCollector()
    for text in texts:
        tasks.add(trajectory(), text)
    return [(task.text, task.runs) for task in tasks.tasks]


def test_tasks_that_differ_in_case_and_punctuation_or_in_a_word_or_two_are_one() -> None:
    long = "Please tell me where the parcel of my order is, I have waited for more than a week now"
    assert joined("Where is it?", "where is it", long, long + " really") == [("Where is it?", 2), (long, 2)]


def test_tasks_whose_numbers_differ_are_two_however_alike() -> None:
    long = "Please tell me where the parcel of my order {} is, I have waited for more than a week now"
    assert len(joined(long.format(4821), long.format(4822), long.format("A17"))) == 3


def test_tasks_of_signs_alone_are_told_apart() -> None:
    assert joined("?!", "...", "?!") == [("?!", 2), ("...", 1)]


@given(st.lists(st.text(min_size=1).filter(str.strip), max_size=20))
def test_every_run_is_counted_once_and_joining_again_changes_nothing(texts: list[str]) -> None:
    once = joined(*texts)
    assert sum(runs for _, runs in once) == len(texts)
    assert [text for text, _ in joined(*(text for text, _ in once))] == [text for text, _ in once]


async def test_the_newest_run_of_a_task_names_it_and_all_are_counted(ring: Ring) -> None:
    first = await asked(ring, "Where is order 4821?")
    other = await asked(ring, "Cancel order 7")
    newest = await asked(ring, "where is order 4821")
    found = await tasks(ring)
    assert [(task.run.id, task.text, task.runs) for task in found.found] == [
        (newest, "where is order 4821", 2), (other, "Cancel order 7", 1),
    ]  # fmt: skip
    assert found.looked_at == 3
    assert first not in {task.run.id for task in found.found}


async def test_campaigns_measurements_and_runs_that_did_not_complete_are_no_traffic(ring: Ring) -> None:
    rows = Rows(ring.store)
    for change in (
        {"origin": Origin.CAMPAIGN}, {"origin": Origin.SHADOW}, {"purpose": Purpose.VAL},
        {"state": TrajectoryState.ERRORED}, {"selection": "not_selected"},
    ):  # fmt: skip
        await rows.set(trajectories, await asked(ring, f"task {change}"), **change)
    with pytest.raises(NoTasks, match="no completed trajectory matches"):
        await tasks(ring)
    await asked(ring, "a real one")
    assert [task.text for task in (await tasks(ring)).found] == ["a real one"]


async def test_a_dataset_gives_tasks_of_any_origin_but_none_that_is_held_out(ring: Ring) -> None:
    project, rows = Project(ring.store, PROJECT), Rows(ring.store)
    kept = [await asked(ring, text) for text in ("Where is order 1?", "Cancel order 2", "held out 3")]
    await rows.set(trajectories, kept[0], origin=Origin.CAMPAIGN)
    await rows.set(trajectories, kept[2], purpose=Purpose.VAL)
    await asked(ring, "not in it")
    await create_dataset(project, "kept", "me")
    await add_to_dataset(project, "kept", kept)
    for alias in (None, ALIAS):
        found = await traffic.traffic_tasks(project, alias, [], Redactor(()), runs=100, dataset="kept")
        assert [task.text for task in found.found] == ["Cancel order 2", "Where is order 1?"]
    await create_dataset(project, "empty", "me")
    with pytest.raises(NoTasks, match="the dataset 'empty' gives no scenario"):
        await traffic.traffic_tasks(project, None, [], Redactor(()), runs=100, dataset="empty")


async def test_only_runs_that_are_wanted_give_tasks(ring: Ring) -> None:
    await asked(ring, "billing", tags={"team": "billing"})
    await asked(ring, "other")
    assert [task.text for task in (await tasks(ring, "tag.team=billing", "calls=1")).found] == ["billing"]
    with pytest.raises(NoTasks):
        await tasks(ring, "tag.team=billing", "reward>0")


async def test_what_the_recorder_would_redact_now_is_marked_though_it_was_recorded(ring: Ring) -> None:
    await asked(ring, "Write to ann@example.org please")
    found = await tasks(ring, redact=["email"])
    assert [task.text for task in found.found] == ["Write to [redacted:email] please"]


async def test_pages_lose_no_run(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "PAGE", 2)
    words = ["apple", "bridge", "candle", "dragon", "engine"]
    for word in words:
        await asked(ring, f"{word} {word}")
    assert [task.text for task in (await tasks(ring)).found] == [f"{word} {word}" for word in reversed(words)]


# the command


def hone(folder: Path, *arguments: str, answer: str | None = None) -> Result:
    given = ["scenarios", "from-traffic", "--alias", ALIAS, "--data", str(folder / "data"), *arguments]
    return CliRunner().invoke(cli, given, input=answer)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder whose store has two runs."""
    async with Ring.running(tmp_path / "data", Script(judge=False)) as ring:
        await asked(ring, "Where is order 4821?")
        await asked(ring, "Cancel ‘order’ 7 \ud800")
    return tmp_path


def test_tasks_are_shown_before_they_are_written_and_only_when_that_is_wanted(folder: Path) -> None:
    out = folder / "tasks.jsonl"
    refused = hone(folder, "--out", str(out), answer="n\n")
    assert "Where is order 4821?" in refused.output
    assert "2 trajectories gave 2 tasks" in refused.output
    assert not out.exists()
    agreed = hone(folder, "--out", str(out), answer="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert [one.input for one in scenarios.read_scenarios(out)] == ["Cancel ‘order’ 7 \ud800", "Where is order 4821?"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    again = hone(folder, "--out", str(out), "--yes")
    assert (again.exit_code, "exists already" in again.output) == (1, True)


def test_scripts_get_json_and_write_with_yes_alone(folder: Path) -> None:
    out = folder / "tasks.jsonl"
    shown = json.loads(hone(folder, "--json", "--out", str(out)).output)
    assert (shown["trajectories"], shown["written"], out.exists()) == (2, None, False)
    shown = json.loads(hone(folder, "--json", "--out", str(out), "--yes").output)
    assert shown["written"] == str(out)
    assert [one.id for one in scenarios.read_scenarios(out)] == [one["id"] for one in shown["scenarios"]]


def test_without_a_file_nothing_is_asked(folder: Path) -> None:
    result = hone(folder)
    assert (result.exit_code, "Nothing was written: name a file with --out." in result.output) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--where", "reward>2"], "gives no scenario: no completed trajectory matches"),
        (["--where", "rewards"], "is not a condition"),
        (["--alias", "nobody"], "no alias 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(folder: Path, arguments: list[str], why: str) -> None:
    result = hone(folder, *arguments)
    assert result.exit_code == 1
    assert why in result.output
