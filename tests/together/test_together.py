"""Two proxies as processes, two judges and a learner on one store: nothing is claimed, judged or trained twice.

The engine and the trainer are scripted: what they would compute is beside the point. Every run's two turns reach two
proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from sqlalchemy import func, select

from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from proxy.supervision.sockets import listen
from recorder.maintenance.integrity.invariants import check_store
from recorder.queue import leases
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores as judged
from recorder.queue.leases import PROXY
from recorder.queue.training import steps
from recorder.registry import aliases, versions
from recorder.registry.aliases import AliasView
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import RecorderSettings
from recorder.states import GroupState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, scores, trajectories
from tests.judge.judge_server import JudgeServer
from tests.judge.judge_server import serve as serve_judge
from tests.proxy.adapters import make_adapter
from tests.proxy.running import NO_TLS
from tests.proxy.scripted_engine import Handler, ScriptedEngine
from tests.proxy.until import until
from tests.trainer.ring import RecordedProgress
from trainer.runtime.learner import Learner, StepSchedule
from trainer.settings import TrainerSettings
from trainer.step.summary import StepReport

pytestmark = pytest.mark.slow

PROJECT, ALIAS = "default", "helpdesk"
RUNS = 4  # in a group
A_STEP = 3  # groups
LONG_S = 120.0  # for what several programs on a loaded machine do
IDLE_S = 3600.0  # no run ends because the machine is slow


@dataclass
class Trainer:
    """Trains nothing, and publishes an adapter that the engine can load."""

    store: Store
    alias: AliasView
    adapters: Path
    owner: str = "scripted-trainer"
    target_note: str | None = None
    took: list[str] = field(default_factory=list)  # groups, as often as they were trained on

    async def close(self) -> None:
        """Nothing is held."""

    async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        alias = await aliases.get_alias(Project(self.store, PROJECT), ALIAS)
        assert alias.live_version_id is not None
        self.took += [claim.group_id for claim in claimed]
        step = await steps.begin_step(self.store, alias.id, alias.live_version_id, campaign_id, groups=claimed)
        version = await versions.allocate_version(self.store, alias.id, alias.live_version_id, step_id=step.id)
        made = make_adapter(self.adapters, version.name)
        step = await steps.finish_step(
            self.store, step.id, version_id=version.id, path=str(made.path), engine_name=made.engine_name,
            manifest_sha256=made.manifest_sha256, metrics={"loss": 0.5}, checkpoint_path=None, groups=claimed,
            trained=await self._members(claimed),
        )  # fmt: skip
        return StepReport(step, await versions.get_version(self.store, version.id), None, {}, len(claimed), {})

    async def _members(self, claimed: Sequence[GroupClaim]) -> list[str]:
        ids = [claim.score_id for claim in claimed if claim.score_id is not None]
        return [member for score in ids for member in await judged.score_rewards(self.store, score)]


@dataclass
class Ring:
    """All of them."""

    store: Store
    engine: ScriptedEngine
    judge: JudgeServer
    proxies: Sequence[httpx.AsyncClient]
    processes: Sequence[subprocess.Popen[bytes]]
    names: list[str] = field(default_factory=list)  # of the groups that were played

    async def turn(self, proxy: int, address: str, *texts: str, **headers: str) -> httpx.Response:
        """A call at one of the proxies; the texts are user and assistant turns in alternation."""
        roles = itertools.cycle(("user", "assistant"))
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        named = {"x-hone-" + name.replace("_", "-"): value for name, value in headers.items()}
        body = {"model": ALIAS, "messages": messages}
        answer = await self.proxies[proxy].post(f"{address}/v1/chat/completions", json=body, headers=named)
        assert answer.status_code == 200, answer.text
        return answer

    async def run(self, group: str, number: int) -> None:
        """A whole run: its turns reach one proxy after the other."""
        address, asked = f"/g/{group}/t/{number}", f"Where is the order of {group}?"
        first = await self.turn(number % 2, address, asked, group_size=str(RUNS))
        said = first.json()["choices"][0]["message"]["content"]
        await self.turn(1 - number % 2, address, asked, said, "And when?", group_size=str(RUNS), done="true")

    async def play(self, *names: str) -> None:
        """Groups of runs, all at once."""
        self.names += names
        await asyncio.gather(*(self.run(name, number) for name in names for number in range(RUNS)))

    async def served(self) -> list[str]:
        """Which version each proxy gives a new run; the runs have no group and do not end."""
        models = [(await proxy.get("/v1/models")).json()["data"] for proxy in self.proxies]
        return [next(card["root"] for card in cards if card["id"] == ALIAS) for cards in models]

    async def both_serve(self, number: int) -> bool:
        return await self.served() == [f"{ALIAS}@{number}"] * 2


@asynccontextmanager
async def running(folder: Path, recording: RecorderSettings) -> AsyncIterator[tuple[Ring, Trainer]]:
    """Until the block ends; what is left is then stopped in order."""
    data = folder / "data"
    async with AsyncExitStack() as stack:
        engine = ScriptedEngine()
        engine.more = {"/v1/chat/completions": answering()}
        await engine.start()
        stack.push_async_callback(engine.stop)
        judge = await stack.enter_async_context(serve_judge())
        store = await opened(stack, data, recording, migrate=True)
        config = folder / "hone.toml"
        config.write_text(settings(engine, recording))
        started = [stack.enter_context(proxy(config, data)) for _ in range(2)]
        proxies = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=90, verify=NO_TLS))
            for _, url in started
        ]
        for http, (process, _) in zip(proxies, started, strict=True):
            await until(lambda http=http, process=process: up(http, process), within_s=LONG_S)  # type: ignore[misc]
        for _ in range(2):
            await judging(stack, await opened(stack, data, recording), judge, recording)
        trainer = await learning(stack, await opened(stack, data, recording), data / "adapters")
        yield Ring(store, engine, judge, proxies, [process for process, _ in started]), trainer


def answering() -> Handler:
    """Answers that differ, so that a judge has something to compare: it reads the worth in them."""
    worths = itertools.cycle(range(1, 10))

    async def answer(_request: web.Request) -> web.Response:
        said = {
            "index": 0,
            "message": {"role": "assistant", "content": f"It is worth 0.{next(worths)}"},
            "finish_reason": "stop",
            "token_ids": [5, 6, 7],
            "logprobs": {"content": [{"token": "x", "logprob": -0.5}] * 3},
        }
        return web.json_response({"prompt_token_ids": [1, 2, 3], "choices": [said]})

    return answer


async def opened(stack: AsyncExitStack, data: Path, recording: RecorderSettings, *, migrate: bool = False) -> Store:
    store = await open_store(data, recording, migrate=migrate)
    stack.push_async_callback(store.close)
    return store


def settings(engine: ScriptedEngine, recording: RecorderSettings) -> str:
    url = f'url = "{recording.url}"\n' if recording.url else ""
    stored = f"[recorder]\nanswered_idle_s = {IDLE_S:.0f}\n{url}"
    alias = f'[aliases.{ALIAS}]\nbase_model = "base"\npromote = "auto"\nholdback_share = 0.0\n'
    return f'{stored}[engine]\nurls = ["{engine.url}"]\n{alias}'


@contextlib.contextmanager
def proxy(config: Path, data: Path) -> Any:
    """`hone serve` as a process, and its URL."""
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "proxy.cli", "serve", "--config", str(config), "--data", str(data)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HONE_")}
    env["HONE_RECORDER__COMMIT_TIMEOUT_S"] = str(LONG_S)  # a busy machine serves no turn unrecorded, which are counted
    process = subprocess.Popen([*argv, "--port", str(port)], env=env)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def up(http: httpx.AsyncClient, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "a proxy died while starting"
    with contextlib.suppress(httpx.TransportError):
        return (await http.get("/readyz")).is_success
    return False


async def judging(stack: AsyncExitStack, store: Store, judge: JudgeServer, recording: RecorderSettings) -> None:
    given = JudgeSettings.model_validate({"model": "openai/judge", "api_base": judge.url})
    context = await stack.enter_async_context(open_judge_context(given, Project(store, PROJECT)))
    stop = asyncio.Event()
    patient = recording.model_copy(update={"answered_idle_s": IDLE_S})  # a judge ends idle runs, too
    task = asyncio.create_task(JudgeWorker(Project(store, PROJECT), context, patient).run(stop))

    async def end() -> None:
        stop.set()
        await task

    stack.push_async_callback(end)


async def learning(stack: AsyncExitStack, store: Store, adapters: Path) -> Trainer:
    alias = await aliases.get_alias(Project(store, PROJECT), ALIAS)
    trainer, given = Trainer(store, alias, adapters), TrainerSettings(min_groups=A_STEP)
    patience = StepSchedule(store, alias, given, SettingsFollower(Project(store, PROJECT), HoneSettings()))
    task = asyncio.create_task(Learner(store, alias, given, trainer, RecordedProgress(), patience).run())

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), task

    stack.push_async_callback(end)
    return trainer


async def test_nothing_is_claimed_judged_or_trained_twice(tmp_path: Path, recording: RecorderSettings) -> None:
    async with running(tmp_path, recording) as (ring, trainer):
        assert len(await leases.list_holders(Project(ring.store, PROJECT), PROXY)) == 2
        await ring.play(*(f"first-{n}" for n in range(A_STEP)))
        await until(lambda: ring.both_serve(1), within_s=LONG_S)
        old = await ring.turn(0, "/t/old", "Where is it?")
        assert old.headers["x-hone-version"] == f"{ALIAS}@1"
        for step in (2, 3):
            await ring.play(*(f"step-{step}-{n}" for n in range(A_STEP)))
            await until(lambda step=step: ring.both_serve(step), within_s=LONG_S)  # type: ignore[misc]
        await pins_hold_and_let_go(ring)
        await counts_are_right(ring, trainer)
        assert [one for checked in await check_store(ring.store, tmp_path / "data") for one in checked.violations] == []
        for process in ring.processes:
            process.send_signal(signal.SIGTERM)
        assert [await asyncio.to_thread(process.wait, 60) for process in ring.processes] == [0, 0]
        assert not await leases.list_holders(Project(ring.store, PROJECT), PROXY)


async def pins_hold_and_let_go(ring: Ring) -> None:
    """A run that began on a version keeps it, whichever proxy it asks; when it has ended, the engine may forget it."""
    loaded = Counter(name.rpartition("-")[0] for name in ring.engine.loads())
    assert loaded == {f"{ALIAS}@{number}": 1 for number in (1, 2, 3)}, "one controller of two loads"
    assert not [name for name in ring.engine.unloads() if name.startswith(f"{ALIAS}@1-")]
    again = await ring.turn(1, "/t/old", "Where is it?", "It is here.", "Sure?", done="true")
    assert again.headers["x-hone-version"] == f"{ALIAS}@1"
    await until(lambda: [n for n in ring.engine.unloads() if n.startswith(f"{ALIAS}@1-")], within_s=LONG_S)


async def counts_are_right(ring: Ring, trainer: Trainer) -> None:
    async with ring.store.read() as conn:
        of_groups = (await conn.execute(select(groups.c.external_id, groups.c.id, groups.c.state))).all()
        mine = {row.id: row for row in of_groups if row.external_id in ring.names}
        of_judges = (await conn.execute(select(scores.c.group_id, func.count()).group_by(scores.c.group_id))).all()
        per_run = (
            select(trajectories.c.group_id, func.count(calls.c.id))
            .join(calls, calls.c.trajectory_id == trajectories.c.id)
            .where(trajectories.c.group_id.in_(list(mine)), calls.c.state == "complete")
            .group_by(trajectories.c.group_id)
        )
        recorded = (await conn.execute(per_run)).all()
    assert len(mine) == len(ring.names) == 3 * A_STEP, "one group of each name, though both proxies heard of it"
    assert {row.state for row in mine.values()} == {GroupState.TRAINED}
    assert dict(map(tuple, recorded)) == dict.fromkeys(mine, 2 * RUNS)
    assert {group: count for group, count in of_judges if group in mine} == dict.fromkeys(mine, 1)
    assert len(ring.judge.requests) == len(mine), "the judge model was asked once for each"
    assert sorted(trainer.took) == sorted(mine)
