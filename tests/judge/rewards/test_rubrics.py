"""Verdicts at hand: what is kept is found again by what was asked, however much comes at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from judge.errors import JudgeUsage
from judge.llm.group_text import PromptTrajectory
from judge.llm.rubric import CriterionVerdict, RubricVerdicts
from judge.rewards.rubrics import StoredVerdicts
from judge.settings import JudgeSettings
from recorder.maintenance.deletion import delete_trajectory
from recorder.store.database import Project, Store
from tests.judge.recorded import PROJECT, Recorded

SETTINGS = JudgeSettings(model="openai/judge")


def said(reason: str) -> RubricVerdicts:
    return RubricVerdicts(
        [CriterionVerdict(True, reason, "an apple"), CriterionVerdict(False, "none")], "judge 1", JudgeUsage(10, 0, 2)
    )


async def test_what_is_said_at_once_is_all_kept_and_costs_nothing_the_second_time(
    store: Store, recorded: Recorded
) -> None:
    _, (run, other) = await recorded.group("g", ["an apple", "a pear"])
    known = StoredVerdicts(SETTINGS, Project(store, PROJECT))

    async def keep(number: int) -> None:
        await known.keep(f"k{number}", run if number % 2 else other, said(f"for {number}"))
        assert list(await known.find([f"k{number}"])) == [f"k{number}"]

    await asyncio.gather(*(keep(number) for number in range(50)))
    again = await StoredVerdicts(SETTINGS, Project(store, PROJECT)).find([f"k{number}" for number in range(60)])
    assert again == {f"k{n}": RubricVerdicts(said(f"for {n}").verdicts, "judge 1", JudgeUsage()) for n in range(50)}
    assert await StoredVerdicts(SETTINGS, Project(store, "another")).find(["k1"]) == {}


async def test_what_was_said_first_stays(store: Store, recorded: Recorded) -> None:
    _, (run,) = await recorded.group("g", ["an apple"])
    known = StoredVerdicts(SETTINGS, Project(store, PROJECT))
    await asyncio.gather(known.keep("k", run, said("first")), known.keep("k", run, said("second")))
    assert (await known.find(["k"]))["k"].verdicts[0].reason == "first"


async def test_asked_again_nothing_is_at_hand_and_the_newer_word_replaces_the_older(
    store: Store, recorded: Recorded
) -> None:
    _, (run,) = await recorded.group("g", ["an apple"])
    await StoredVerdicts(SETTINGS, Project(store, PROJECT)).keep("k", run, said("first"))
    again = StoredVerdicts(SETTINGS, Project(store, PROJECT), again=True)
    assert await again.find(["k"]) == {}
    await again.keep("k", run, said("second"))
    assert (await StoredVerdicts(SETTINGS, Project(store, PROJECT)).find(["k"]))["k"].verdicts[0].reason == "second"


async def test_of_a_run_that_was_deleted_meanwhile_nothing_is_kept(store: Store, recorded: Recorded) -> None:
    _, (run, other) = await recorded.group("g", ["an apple", "a pear"])
    known = StoredVerdicts(SETTINGS, Project(store, PROJECT))
    await delete_trajectory(Project(store, PROJECT), run)
    await asyncio.gather(known.keep("gone", run, said("so")), known.keep("there", other, said("so")))
    assert list(await known.find(["gone", "there"])) == ["there"]


@pytest.mark.sqlite_only("to it a table that is not there is a store that refuses")
async def test_a_store_that_refuses_costs_no_verdict_its_use(store: Store, recorded: Recorded) -> None:
    _, (run,) = await recorded.group("g", ["an apple"])
    known = StoredVerdicts(SETTINGS, Project(store, PROJECT))
    async with store.write() as conn:
        await conn.exec_driver_sql("ALTER TABLE verdicts RENAME TO elsewhere")
    await known.keep("k", run, said("so"))
    async with store.write() as conn:
        await conn.exec_driver_sql("ALTER TABLE elsewhere RENAME TO verdicts")
    await known.keep("k", run, said("again"))
    assert (await known.find(["k"]))["k"].verdicts[0].reason == "again"


RUN = PromptTrajectory("x", [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "an apple"}])


@pytest.mark.parametrize("change", [{"model": "openai/other"}, {"temperature": 1.0}, {"extra": {"seed": 1}}])
def test_another_judge_is_another_question(store: Store, change: dict[str, Any]) -> None:
    changed = SETTINGS.model_copy(update=change)
    keys = {
        StoredVerdicts(by, Project(store, PROJECT)).key(RUN, ["has apple"], evidence=False)
        for by in (SETTINGS, changed)
    }
    assert len(keys) == 2


def test_who_asks_and_how_fast_is_no_part_of_the_question(store: Store) -> None:
    slower = SETTINGS.model_copy(update={"concurrency": 1, "timeout_s": 3.0, "retries": 9})
    twin = PromptTrajectory("y", RUN.messages)
    one = StoredVerdicts(SETTINGS, Project(store, PROJECT)).key(RUN, ["has apple"], evidence=False)
    assert StoredVerdicts(slower, Project(store, PROJECT)).key(twin, ["has apple"], evidence=False) == one
    assert StoredVerdicts(SETTINGS, Project(store, PROJECT)).key(RUN, ["has apple"], evidence=True) != one
