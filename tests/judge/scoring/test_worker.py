"""The worker: every ready group is scored once, or says why not and is tried again; nothing is lost when it stops."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from judge.llm.judge_model import JudgeAnswer, Messages
from judge.rewards import rules
from judge.rewards.judge_context import JudgeContext
from judge.scoring import worker as worker_module
from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from recorder.base import rate_limited_log
from recorder.errors import StoreUnavailable
from recorder.queue import feedback, leases
from recorder.queue.judging import rescoring, scores
from recorder.queue.judging.records import JudgePrompt, load_prompts
from recorder.setting_changes import actions as setting_actions
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState, Purpose
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.schema import groups
from recorder.store.schema import scores as scores_table
from tests.judge.judge_server import JudgeServer, fails, says, verdicts
from tests.judge.recorded import PROJECT, Recorded
from tests.stores import reached

pytestmark = pytest.mark.slow  # programs and whole campaigns: left out of `make check`

Make = Callable[..., JudgeSettings]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another task or process does."""
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)


async def state(store: Store, group_id: str) -> Any:
    async with store.read() as conn:
        return (await conn.execute(select(groups).where(groups.c.id == group_id))).one()


def reaches(store: Store, group_id: str, wanted: GroupState) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return bool((await state(store, group_id)).state == wanted)

    return there


@asynccontextmanager
async def working(
    store: Store,
    settings: JudgeSettings,
    recorder: RecorderSettings | None = None,
    change: Callable[[JudgeContext], JudgeContext] = lambda context: context,
    learn: LearnSettings | None = None,
) -> AsyncIterator[JudgeWorker]:
    """A worker that runs in the background."""
    stop = asyncio.Event()
    async with open_judge_context(settings, Project(store, PROJECT)) as context:
        project = Project(store, PROJECT)
        follower = SettingsFollower(project, HoneSettings(learn=learn or LearnSettings()))
        worker = JudgeWorker(project, change(context), recorder or RecorderSettings(), follower=follower)
        running = asyncio.create_task(worker.run(stop))
        try:
            yield worker
        finally:
            stop.set()
            await running


async def test_a_ready_group_is_scored_and_the_score_is_written(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    group_id, members = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    async with working(store, settings()):
        await until(reaches(store, group_id, GroupState.SCORED))
    (score,) = await scores.list_scores(store, group_id)
    assert (await state(store, group_id)).current_score_id == score.id
    assert await scores.score_rewards(store, score.id) == dict(zip(members, [0.2, 0.9], strict=True))
    assert (score.judge_model, score.tokens_in, score.reply is not None) == ("openai/judge", 100, True)
    assert len(server.requests) == 1
    assert await load_prompts(store, score.id) == [JudgePrompt(None, server.requests[0]["messages"])]


async def test_groups_that_become_ready_while_it_runs_are_scored_side_by_side(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    both_there = asyncio.Event()

    async def waits_for_company(body: dict[str, Any]) -> Any:
        if len(server.requests) >= 2:
            both_there.set()
        await both_there.wait()
        return await verdicts()(body)

    server.behave(waits_for_company)
    async with working(store, settings(concurrency=2)):
        one, _ = await recorded.group("one", ["worth 0.1", "worth 0.2"])
        other, _ = await recorded.group("other", ["worth 0.3", "worth 0.4"])
        await until(reaches(store, one, GroupState.SCORED))
        await until(reaches(store, other, GroupState.SCORED))


async def test_several_workers_score_each_group_once(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    made = [await recorded.group(f"g{i}", [f"worth 0.{i}", "worth 0.9"]) for i in range(8)]
    async with working(store, settings(concurrency=2)), working(store, settings(concurrency=2)):
        for group_id, _ in made:
            await until(reaches(store, group_id, GroupState.SCORED))
    assert len(server.requests) == 8
    assert [len(await scores.list_scores(store, group_id)) for group_id, _ in made] == [1] * 8


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (lambda s: s.hang, "judge_timeout"),
        (lambda s: says("no idea"), "judge_unreadable"),
        (lambda s: fails(500), "judge_down"),
        (lambda s: fails(401), "judge_refused"),
        (lambda s: verdicts(change=lambda e: e[:1]), "judge_unreadable"),
    ],
)
async def test_a_judge_that_fails_leaves_the_group_unscored_with_the_reason_and_it_is_tried_again(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer, fault: Any, code: str
) -> None:
    server.behave(fault(server))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    # Only a judge that hangs may meet the short limit: on a busy machine an answer takes longer.
    patience = {"timeout_s": 0.3} if code == "judge_timeout" else {}
    async with working(store, settings(retries=0, backoff_s=0.05, **patience)):
        await until(reaches(store, group_id, GroupState.UNSCORED))
        found = await state(store, group_id)
        assert (found.reason, found.current_score_id) == (code, None)
        assert await scores.list_scores(store, group_id) == []
        server.behave(verdicts())
        await until(reaches(store, group_id, GroupState.SCORED))
    (why, *_) = await ledger.object_entries(store, "group", group_id)
    assert why.code == code
    assert why.detail is not None
    assert "judge" in why.detail["detail"]["message"]


async def test_each_failure_waits_longer_up_to_a_bound(store: Store, recorded: Recorded, settings: Make) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    wanted = settings(model="", rewards=[{"kind": "feedback", "name": "never"}], backoff_s=0.01, backoff_max_s=0.05)
    async with working(store, wanted):

        async def tried_often() -> bool:
            return int((await state(store, group_id)).tries) >= 5

        await until(tried_often)
    waits = [
        entry.detail["try_after_s"] for entry in await ledger.object_entries(store, "group", group_id) if entry.detail
    ]
    assert waits[:5] == [0.01, 0.02, 0.04, 0.05, 0.05]


async def test_a_group_of_a_validation_that_never_can_be_scored_is_measured_with_the_reason(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    group_id, (member,) = await recorded.group("v", ["worth 1"], purpose=Purpose.VAL)
    async with working(store, settings()):
        await until(reaches(store, group_id, GroupState.MEASURED))
    assert (await state(store, group_id)).reason == "ruler_needs_two"
    assert await ledger.object_entries(store, "trajectory", member) == []  # no exclusion
    assert server.requests == []


SLOW = r"^(?:(?:a|aa)+)+$"
AAA = "a" * 40 + "!"
BY_CODE: dict[str, tuple[list[dict[str, Any]], str]] = {
    "rule": (
        [
            {"kind": "function", "function": "checks:right"},
            {"kind": "rule", "rule": "regex", "value": SLOW, "effect": "penalty"},
        ],
        "regex: it could not be checked: the expression takes longer than 0.05 s",
    ),
    "function": ([{"kind": "function", "function": "checks:broken"}], "broken: RuntimeError: always"),
    "range": ([{"kind": "function", "function": "checks:seven"}], "seven: 7.0 is outside 0 to 1"),
    "rubric": ([{"kind": "rubric"}], "rubric: its scenario has no criteria"),
}
CODE = """
def right(t):
    return 1

def broken(t):
    raise RuntimeError("always")

def seven(t):
    return 7
"""


@pytest.mark.parametrize("kind", BY_CODE)
async def test_a_check_that_is_never_decided_excludes_its_group_after_three_tries(
    store: Store, recorded: Recorded, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rules, "MATCH_TIMEOUT_S", 0.05)
    (tmp_path / "checks.py").write_text(CODE)
    rewards, said = BY_CODE[kind]
    group_id, (member, _) = await recorded.group("g", [AAA, AAA])
    async with working(store, settings(model="", rewards=rewards, folder=tmp_path, backoff_s=0.01)):
        await until(reaches(store, group_id, GroupState.LEFT_OUT))
    assert (await state(store, group_id)).reason == "check_undecided"
    entries = await ledger.object_entries(store, "group", group_id)
    assert [entry.code for entry in entries] == ["check_undecided"] * 3
    for entry in entries:
        assert entry.detail is not None
        assert f"cannot be decided on 2 of 2 trajectories: {said}" in entry.detail["detail"]["message"]
    assert [entry.code for entry in await ledger.object_entries(store, "trajectory", member)] == ["check_undecided"]


async def test_a_check_that_is_mended_in_time_scores_and_an_excluded_group_can_be_judged_again(
    store: Store, recorded: Recorded, settings: Make, tmp_path: Path
) -> None:
    code = tmp_path / "checks.py"
    code.write_text(CODE)
    first, _ = await recorded.group("first", ["x", "y"])
    by = {"model": "", "rewards": [{"kind": "function", "function": "checks:broken"}], "folder": tmp_path}
    async with working(store, settings(**by, backoff_s=0.01)):
        await until(reaches(store, first, GroupState.LEFT_OUT))
    second, _ = await recorded.group("second", ["x", "y"])
    async with working(store, settings(**by, backoff_s=30)):
        await until(reaches(store, second, GroupState.UNSCORED))
    code.write_text(CODE.replace('raise RuntimeError("always")', "return 1"))
    for group_id in (first, second):
        await rescoring.request_rescore(Project(store, PROJECT), group_id, by="me", why="mended")
    async with working(store, settings(**by)):
        await until(reaches(store, first, GroupState.SCORED))
        await until(reaches(store, second, GroupState.SCORED))


async def test_a_held_part_is_waited_for_however_often_code_cannot_decide_it(
    store: Store, recorded: Recorded, settings: Make, tmp_path: Path
) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    held = [{"kind": "function", "function": "checks:broken", "missing": "hold"}]
    group_id, _ = await recorded.group("g", ["x", "y"])

    async def tried_often() -> bool:
        return int((await state(store, group_id)).tries) >= 5

    async with working(store, settings(model="", rewards=held, folder=tmp_path, backoff_s=0.01, backoff_max_s=0.01)):
        await until(tried_often)
    assert (await state(store, group_id)).reason == "parts_missing"


async def test_groups_with_one_usable_member_never_reach_the_judge(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 1"], size=1)
    async with working(store, settings()):
        await until(reaches(store, group_id, GroupState.LEFT_OUT))
    assert (await state(store, group_id)).reason == "too_few"
    assert server.requests == []


async def test_the_sweep_runs_so_idle_groups_get_judged(store: Store, recorded: Recorded, settings: Make) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"], size=5)  # three never come
    async with working(store, settings(), RecorderSettings(group_timeout_s=0.1)):
        await until(reaches(store, group_id, GroupState.SCORED))


async def test_a_judge_shows_that_it_is_present_and_that_it_is_gone(store: Store, settings: Make) -> None:
    async def present() -> bool:
        return bool(await leases.list_holders(Project(store, PROJECT), "judge:"))

    async with working(store, settings()) as worker:
        await until(present)
        (held,) = await leases.list_holders(Project(store, PROJECT), "judge:")
        assert held.name == f"judge:{worker.owner}"
    assert not await present()


async def test_a_stopped_worker_gives_its_groups_back(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    server.behave(server.hang)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    async with working(store, settings()):
        await server.arrived.wait()
        assert (await state(store, group_id)).state == GroupState.JUDGING
    found = await state(store, group_id)
    assert (found.state, found.tries) == (GroupState.READY, 0)


async def test_work_is_dropped_when_somebody_else_took_the_group(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    server.behave(server.hang)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    async with working(store, settings(), RecorderSettings(lease_s=0.3)) as worker:
        await server.arrived.wait()
        async with store.write() as conn:
            taken = {"lease_owner": "another", "lease_epoch": groups.c.lease_epoch + 1, "lease_expires_at": 9e9}
            await conn.execute(update(groups).where(groups.c.id == group_id).values(**taken))

        async def idle() -> bool:
            return not worker._running

        await until(idle)
    found = await state(store, group_id)
    assert (found.state, found.lease_owner) == (GroupState.JUDGING, "another")
    assert await scores.list_scores(store, group_id) == []


async def test_a_claim_is_renewed_while_a_slow_judge_thinks(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    slow = asyncio.Event()

    async def thinks(body: dict[str, Any]) -> Any:
        await slow.wait()
        return await verdicts()(body)

    server.behave(thinks)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    async with working(store, settings(), RecorderSettings(lease_s=0.3)):
        await server.arrived.wait()
        first = (await state(store, group_id)).lease_expires_at

        async def outlived() -> bool:
            return bool((await state(store, group_id)).lease_expires_at > first + 0.3)

        await until(outlived)
        slow.set()
        await until(reaches(store, group_id, GroupState.SCORED))
    assert len(server.requests) == 1


class Flaky(Store):
    """A store that refuses some of its writes, as a full disk or a lost connection does."""

    refuse = 0

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        if self.refuse > 0:
            self.refuse -= 1
            raise StoreUnavailable("the disk is full")
        async with super().write() as conn:
            yield conn


async def test_a_store_that_stays_away_is_told_once_in_a_while(
    store: Store,
    recorded: Recorded,
    settings: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(worker_module, "HICCUP_S", 0.001)
    monkeypatch.setattr(rate_limited_log, "time", SimpleNamespace(monotonic=lambda: 0.0))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    flaky = Flaky(store.url.render_as_string(hide_password=False))
    try:
        async with working(flaky, settings()):
            flaky.refuse = 30
            await until(reaches(store, group_id, GroupState.SCORED))
    finally:
        await flaky.close()
    said = [r.getMessage() for r in caplog.records if r.name == worker_module.__name__]
    assert len([line for line in said if "the disk is full" in line]) == 1


async def test_the_worker_outlives_a_store_that_hiccups_and_does_not_ask_twice(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "HICCUP_S", 0.01)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    flaky = Flaky(store.url.render_as_string(hide_password=False))
    flaky.refuse = 3

    async def full_disk_at_the_worst_moment(body: dict[str, Any]) -> Any:
        flaky.refuse = 3
        return await verdicts()(body)

    server.behave(full_disk_at_the_worst_moment)
    try:
        async with working(flaky, settings()):
            await until(reaches(store, group_id, GroupState.SCORED))
    finally:
        await flaky.close()
    assert len(server.requests) == 1


class Refusing(Store):
    """A store that takes everything but scores: their row is what is wrong, and nothing that time mends."""

    refuses = True
    error: Exception = OverflowError("Python int too large to convert to SQLite INTEGER")

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        async with super().write() as conn:
            yield conn
            written = await conn.execute(select(func.count()).select_from(scores_table))
            if self.refuses and written.scalar_one():
                raise self.error


@pytest.mark.parametrize("error", [Refusing.error, StoreUnavailable("the disk is full")])
async def test_a_score_that_cannot_be_written_is_a_failed_try_and_the_judge_is_not_asked_again(
    store: Store,
    recorded: Recorded,
    settings: Make,
    server: JudgeServer,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    monkeypatch.setattr(worker_module, "HICCUP_S", 0.001)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    refusing = Refusing(store.url.render_as_string(hide_password=False))
    refusing.error = error
    try:
        async with working(refusing, settings(backoff_s=0.01, backoff_max_s=0.02)):

            async def tried_often() -> bool:
                return int((await state(store, group_id)).tries) >= 3

            await until(tried_often)
            assert await scores.list_scores(store, group_id) == []
            refusing.refuses = False
            await until(reaches(store, group_id, GroupState.SCORED))
    finally:
        await refusing.close()
    entries = await ledger.object_entries(store, "group", group_id)
    assert {entry.code for entry in entries} == {"score_not_written"}
    details = [entry.detail for entry in entries if entry.detail]
    assert str(error) in details[0]["detail"]["message"]
    assert [detail["detail"]["tokens_in"] for detail in details[:3]] == [100, 0, 0]  # paid once, and counted
    assert len(server.requests) == 1


async def test_what_no_database_can_hold_poisons_no_group(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    server.behave(verdicts(change=lambda e: [{**one, "explanation": "half \ud83d of it"} for one in e]))
    async with working(store, settings()):
        await until(reaches(store, group_id, GroupState.SCORED))
    (score,) = await scores.list_scores(store, group_id)
    assert {part.explanation for part in score.parts if part.part == "ruler"} == {r"half \ud83d of it"}


async def test_feedback_that_comes_after_the_score_scores_the_group_again_and_asks_no_judge(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    group_id, members = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    wanted = settings(rewards=[{"kind": "ruler"}, {"kind": "feedback", "name": "liked"}])

    async def scored_with_feedback() -> bool:
        found = await state(store, group_id)
        return len(await scores.list_scores(store, group_id)) == 2 and found.state == GroupState.SCORED

    async with working(store, wanted):
        await until(reaches(store, group_id, GroupState.SCORED))
        for member in members:
            await feedback.add_feedback(Project(store, PROJECT), member, "liked", member == members[0])
        await until(scored_with_feedback)
    first, again = await scores.list_scores(store, group_id)
    assert await scores.score_rewards(store, first.id) == dict(zip(members, [0.2, 0.9], strict=True))
    assert await scores.score_rewards(store, again.id) == pytest.approx(dict(zip(members, [0.6, 0.45], strict=True)))
    assert (len(server.requests), again.tokens_in) == (1, 0)
    assert await load_prompts(store, again.id) == [JudgePrompt(None, server.requests[0]["messages"])]


async def test_who_asks_for_a_new_score_has_the_judge_asked_anew_and_once(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    group_id, members = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    wanted = settings(rewards=[{"kind": "ruler"}, {"kind": "feedback", "name": "liked"}])

    async def scored(times: int) -> bool:
        found = await state(store, group_id)
        return len(await scores.list_scores(store, group_id)) == times and found.state == GroupState.SCORED

    async with working(store, wanted):
        await until(lambda: scored(1))
        await rescoring.request_rescore(Project(store, PROJECT), group_id, by="me", why="the rubric reads otherwise")
        await until(lambda: scored(2))
        assert len(server.requests) == 2
        await feedback.add_feedback(Project(store, PROJECT), members[0], "liked", True)
        await until(lambda: scored(3))
    assert len(server.requests) == 2


async def test_a_fault_of_our_own_costs_one_group_not_the_worker(
    store: Store, recorded: Recorded, settings: Make
) -> None:
    broken, _ = await recorded.group("broken", ["worth 0.2", "worth 0.9"])
    fine, _ = await recorded.group("fine", ["worth 0.3", "worth 0.8"])

    def tripping(context: JudgeContext) -> JudgeContext:
        async def trips(messages: Messages) -> JudgeAnswer:
            if "worth 0.2" in messages[1]["content"]:
                raise ZeroDivisionError("a bug")
            return await context.judges[0].ask(messages)

        return replace(context, judges=[replace(context.judges[0], ask=trips)])

    async with working(store, settings(concurrency=1, backoff_s=600), change=tripping):
        await until(reaches(store, fine, GroupState.SCORED))
    found = await state(store, broken)
    assert (found.state, found.reason) == (GroupState.UNSCORED, "judge_fault")


def environment(server: JudgeServer, store: Store) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HONE_")}
    return kept | reached(store) | {"HONE_JUDGE__MODEL": "openai/judge", "HONE_JUDGE__API_BASE": server.url}


async def hone(*args: str, env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proxy.cli",
        *args,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
async def test_hone_judge_scores_and_stops_cleanly_on_a_signal(
    store: Store, recorded: Recorded, server: JudgeServer, tmp_path: Path, number: signal.Signals
) -> None:
    done, _ = await recorded.group("done", ["worth 0.2", "worth 0.9"])
    process = await hone("judge", "--data", str(tmp_path / "data"), env=environment(server, store))
    await until(reaches(store, done, GroupState.SCORED))
    server.arrived.clear()
    server.behave(server.hang)
    begun, _ = await recorded.group("begun", ["worth 0.3", "worth 0.8"])
    await server.arrived.wait()
    process.send_signal(number)
    _, errors = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in errors
    assert b"2 of 2 rewarded" in errors
    assert (await state(store, begun)).state == GroupState.READY
    assert await leases.list_holders(Project(store, PROJECT), "judge:") == []


@pytest.mark.slow
async def test_hone_judge_killed_loses_nothing(
    store: Store, recorded: Recorded, server: JudgeServer, settings: Make, tmp_path: Path
) -> None:
    server.behave(server.hang)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    env = environment(server, store) | {"HONE_RECORDER__LEASE_S": "1"}
    process = await hone("judge", "--data", str(tmp_path / "data"), env=env)
    await server.arrived.wait()
    process.kill()
    await process.communicate()
    assert (await state(store, group_id)).state == GroupState.JUDGING
    server.behave(verdicts())
    async with working(store, settings()):
        await until(reaches(store, group_id, GroupState.SCORED))


async def test_a_spent_budget_holds_live_groups_and_no_campaigns(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = await recorded.group("first", ["worth 0.2", "worth 0.9"])
    caplog.set_level("INFO", logger="judge")
    async with working(store, settings(), learn=LearnSettings(judge_tokens_per_day=1)):
        await until(reaches(store, first, GroupState.SCORED))
        live, _ = await recorded.group("live", ["worth 0.1", "worth 0.9"])
        planned, _ = await recorded.group("planned", ["worth 0.3", "worth 0.9"])
        async with store.write() as conn:
            await conn.execute(update(groups).where(groups.c.id == planned).values(campaign_id="campaign_1"))
        await until(reaches(store, planned, GroupState.SCORED))
        assert (await state(store, live)).state == GroupState.READY
    assert "Judging is paused: the judge used its 1 token of the last 24 hours. It resumes at about " in caplog.text


async def test_a_budget_that_is_raised_at_run_time_lets_the_judge_go_on(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    project, stop = Project(store, PROJECT), asyncio.Event()
    started = HoneSettings(learn=LearnSettings(judge_tokens_per_day=1))
    follower, page = SettingsFollower(project, started), SettingsFollower(project, started)
    first, _ = await recorded.group("first", ["worth 0.2", "worth 0.9"])
    async with open_judge_context(settings(), project) as context, follower.running():
        worker = JudgeWorker(project, context, RecorderSettings(), follower=follower)
        running = asyncio.create_task(worker.run(stop))
        await until(reaches(store, first, GroupState.SCORED))
        second, _ = await recorded.group("second", ["worth 0.1", "worth 0.9"])
        await setting_actions.set_value(page, "learn.judge_tokens_per_day", None, "somebody")
        await until(reaches(store, second, GroupState.SCORED))
        stop.set()
        await running


async def test_groups_that_are_too_old_are_left_out_and_cost_nothing(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    old, _ = await recorded.group("old", ["worth 0.2", "worth 0.9"])
    async with store.write() as conn:
        await conn.execute(update(groups).where(groups.c.id == old).values(ready_at=0.0))
    async with working(store, settings(), learn=LearnSettings(max_age_s=60)):
        await until(reaches(store, old, GroupState.LEFT_OUT))
    assert server.requests == []
