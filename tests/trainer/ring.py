"""The rest of the ring for a campaign's tests: all that it meets, with the engine and torch scripted.

The store, the recorder, claims, scores, steps and versions are the real ones. Scripted are: a proxy that answers from a
list instead of an engine, a judge that rewards the right answer, a controller that loads nothing, a trainer that
multiplies nothing. What a version can do is decided by its number.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from judge.errors import JudgeUsage
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, GateSettings, ModelSettings, ProxySettings
from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
)
from recorder.queue import claims, leases
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.queue.training import steps
from recorder.registry import alias_moves, aliases, ancestry, replicas, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import CallState, Confidence, VersionState
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import CampaignEnded, StepDone, Validation
from recorder.views.trajectories import transcripts
from tests.judge import rubric_replies
from tests.judge.judge_server import entries, last_text
from tests.recorder.score_rows import new_score
from trainer.campaign import record
from trainer.campaign_settings import CampaignSettings
from trainer.evaluation import runner as evaluation
from trainer.evaluation.request import plan_evaluation
from trainer.evaluation.runner import EvaluationResult
from trainer.progress import Event, Notice
from trainer.runtime.services import ServiceRequest
from trainer.runtime.train import train
from trainer.settings import TrainerSettings
from trainer.step.summary import StepReport
from trainer.track_settings import TrackSettings

PROJECT, ALIAS = "default", "helpdesk"
_ALIVE_S: Final = 2.0  # how often the engine and the proxy show that they live, whatever changes
_AGAIN_S: Final = 0.05  # how often the judge looks for what may be scored again by now

# Asks its model once, over plain HTTP, and returns what it said.
AGENT = """
import asyncio, json, urllib.request

def ask(task):
    body = json.dumps({"model": task.model, "messages": [{"role": "user", "content": task.input}]}).encode()
    request = urllib.request.Request(task.base_url + "/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]["content"]

async def run(task):
    return await asyncio.to_thread(ask, task)

async def stubborn(task):
    answer = await run(task)
    if "2" in task.input:
        raise ValueError("I do not like twos")
    return answer

async def silent(task):
    return "I never asked"

def solved(trajectory):
    return trajectory.messages[-1]["content"] == trajectory.scenario["reference"]
"""


@dataclass
class Script:
    """What the ring does, for tests to set."""

    skill: Callable[[int], float] = lambda number: min(1.0, 0.3 + 0.2 * number)  # share of right answers by version
    at: Mapping[str, float] = field(default_factory=dict)  # share of right answers to an input, by whatever version
    by_steps: bool = False  # `skill` is asked by how many steps a version is from version 0, and not by its number
    fail: Callable[[int], bool] = lambda call: False  # which calls (counted from 1) the engine fails with 500
    hold: asyncio.Event | None = None  # calls from `hold_after` on wait for it
    hold_after: int = 10**9
    hold_at_once: int = 1  # so many of them make it reached
    hold_groups: str | None = None  # calls of groups with this in their name wait for it too
    reject: set[int] = field(default_factory=set)  # versions that the controller rejects
    promote: bool = True
    judge: bool = True
    judge_fails: set[str] = field(default_factory=set)  # scenarios whose group cannot be scored the first time
    providers: Mapping[str, float] = field(default_factory=dict)  # share of right answers by another provider's model
    # Where set, Hone's own judge works in the place of the scripted one. Where it names no API, a model's replies are
    # scripted: right answers get 1.
    worker: JudgeSettings | None = None
    quarrel: bool = False  # every second reply of that model says the opposite
    recipe: Callable[[str], str] = lambda group: "recipe"  # by which the scripted judge scores a group, by its name


class Ring:
    """Proxy, judge and controller of one store, on loopback."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        alias: AliasView,
        script: Script,
        data: Path | None = None,
        recording: RecorderSettings | None = None,
    ) -> None:
        self.store = store
        self.data = data
        self.recording = recording or RecorderSettings()
        self.recorder = recorder
        self.alias = alias
        self.script = script
        self.url = ""
        self.calls: Counter[str] = Counter()  # by address
        self.asked: Counter[str] = Counter()  # models, by name
        self.prompts: list[str] = []  # all that the judge model was shown
        self.reached_hold = asyncio.Event()
        self._held = 0

    @classmethod
    @asynccontextmanager
    async def running(
        cls, data: Path, script: Script, settings: RecorderSettings | None = None, fingerprint: str | None = None
    ) -> AsyncIterator[Ring]:
        """Serve until left. Without settings, over a new store in the data folder; `fingerprint`: of the base."""
        recording = settings or RecorderSettings()
        store = await open_store(data, recording, migrate=True)
        alias = await aliases.ensure_alias(Project(store, PROJECT), ALIAS, "base", fingerprint)
        recorder = Recorder(store, recording)
        await recorder.start()
        ring = cls(store, recorder, alias, script, data, recording)
        runner = await ring._serve()
        tasks = [asyncio.create_task(work()) for work in (ring._judge, ring._control, ring._report)]
        try:
            yield ring
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await runner.cleanup()
            await recorder.stop()
            await store.close()
            for end in ends:
                if end is not None and not isinstance(end, asyncio.CancelledError):
                    raise end

    async def train(self, settings: Mapping[str, Any], told: RecordedProgress, **given: Any) -> CampaignEnded:
        """`hone train` on this ring's store: `run_campaign`, and what it takes."""
        assert self.data is not None
        return await run_campaign(self.data, self.url, settings, told, recording=self.recording, **given)

    async def evaluate(self, names: Sequence[str], file: Path, settings: Mapping[str, Any], told: RecordedProgress,
                       **given: Any) -> EvaluationResult:  # fmt: skip
        """`hone eval` on this ring's store: `run_evaluation`, and what it takes."""
        assert self.data is not None
        return await run_evaluation(self.data, self.url, names, file, settings, told, recording=self.recording, **given)

    # --- proxy

    async def _serve(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_post("/g/{group}/t/{trajectory}/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        self.url = f"http://{host}:{port}"
        return runner

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _complete(self, request: web.Request) -> web.Response:
        group, trajectory = request.match_info["group"], request.match_info["trajectory"]
        self.calls[f"{group}/{trajectory}"] += 1
        number = self.calls.total()  # taken at once: others come in while this one waits
        named = self.script.hold_groups is not None and self.script.hold_groups in group
        if (number >= self.script.hold_after or named) and self.script.hold is not None:
            self._held += 1
            if self._held == self.script.hold_at_once:
                self.reached_hold.set()
            await self.script.hold.wait()
        body = await request.json()
        self.asked[body["model"]] += 1
        failed = self.script.fail(number)
        answer = None if failed else await self._commit(group, trajectory, body, failed=False)
        if answer is None:
            await self._commit(group, trajectory, body, failed=True)
            return web.json_response({"error": {"message": "the engine died"}}, status=503)
        return web.json_response({"choices": [{"index": 0, "message": {"role": "assistant", "content": answer}}]})

    async def _commit(self, group: str, trajectory: str, body: dict[str, Any], *, failed: bool) -> str:
        address = Address(trajectory=trajectory, group=group)
        digest = hashlib.blake2b(repr(body).encode(), digest_size=16).digest()
        request = RecordedRequest(
            "chat", "/v1/chat/completions", body["model"], False, body["messages"], None, None, {}, digest,
            SamplingParameters(),
        )  # fmt: skip
        alias = await aliases.get_alias(Project(self.store, PROJECT), ALIAS)
        ref = await self.recorder.trajectory_at(PROJECT, alias.id, address, request, alias.live_version_id)
        assert ref.version_id is not None
        version = await self._asked_for(body["model"]) or await versions.get_version(self.store, ref.version_id)
        question = body["messages"][0]["content"]
        provider = self.script.providers.get(body["model"])
        number = await self._steps_to(version) if self.script.by_steps else version.number
        skill = self.script.skill(number) if provider is None else provider
        skill = self.script.at.get(question, skill)
        answer = f"answer {question}" if _luck(trajectory) < skill else "no idea"
        said = SampledChoice(0, {"role": "assistant", "content": answer}, [4, 5], [-0.1, -0.2], "stop")
        now = time.time()
        turn = RecordedCall(
            call_id=new_id("call"),
            project_id=PROJECT,
            address=address,
            attribution=Attribution("path", Confidence.STATED, ref),
            request=request,
            state=CallState.ERRORED if failed else CallState.COMPLETE,
            alias_id=alias.id,
            version_id=version.id if provider is None else None,
            base_fingerprint=self.alias.base_fingerprint,
            prompt_token_ids=[1, 2, 3],
            choices=[] if failed else [said],
            usage=None,
            response_meta=None,
            http_status=503 if failed else 200,
            error="the engine died" if failed else None,
            started_at=now,
            first_token_at=None if failed else now,
            finished_at=now,
        )
        await self.recorder.commit(turn)
        return answer

    async def _steps_to(self, version: VersionView) -> int:
        async with self.store.read() as conn:
            return len(list(await conn.execute(ancestry.ancestry_ages(version.id)))) - 1

    async def _asked_for(self, model: str) -> VersionView | None:
        """The version that a model's name names, if it names one."""
        known = await versions.get_versions(Project(self.store, PROJECT))
        return next((version for version in known if version.name == model), None)

    async def _report(self) -> None:
        with self.store.watch.on(Topic.SERVICE) as news:
            while True:
                await news.wait(_ALIVE_S)
                alias = await aliases.get_alias(Project(self.store, PROJECT), ALIAS)
                loaded = [version.engine_name for version in await versions.get_versions(Project(self.store, PROJECT))]
                await replicas.report_replica(Project(self.store, PROJECT), "http://engine", state="up", loaded=loaded)
                await replicas.report_proxy(
                    Project(self.store, PROJECT),
                    "proxy",
                    self.url,
                    generations={alias.id: alias.generation},
                    in_flight={},
                )

    # --- judge

    async def _judge(self) -> None:
        if self.script.worker is not None:
            ask = None if self.script.worker.api_base else self._reply
            async with open_judge_context(self.script.worker, Project(self.store, PROJECT), ask=ask) as context:
                await JudgeWorker(Project(self.store, PROJECT), context, RecorderSettings()).run(asyncio.Event())
        if not self.script.judge:
            return
        await leases.acquire_lease(Project(self.store, PROJECT), "judge:scripted", "scripted", 600)
        with self.store.watch.on(Topic.GROUPS) as news:
            while True:
                # A live group has no scenario whose reference it could compare: tests score theirs themselves.
                claim = await claims.claim_for_judging(Project(self.store, PROJECT), "scripted", 60, of_campaigns=True)
                if claim is None:
                    await news.wait(_AGAIN_S)
                    continue
                await self._score(claim)

    async def _reply(self, messages: Messages) -> JudgeAnswer:
        self.prompts.append(json.dumps(messages))
        asked = {"messages": list(messages)}
        if '"response"' in last_text(asked):  # one run, and criteria
            found = {"criteria": rubric_replies.entries(asked, lambda said, _: said.startswith("answer"))}
        else:
            opposite = self.script.quarrel and len(self.prompts) % 2 == 0
            found = {
                "trajectories": entries(
                    asked, lambda document: float(last_text(document).startswith("answer") != opposite)
                )
            }
        return JudgeAnswer(json.dumps(found), "stop", None, JudgeUsage(tokens_in=100, tokens_out=20, cost_usd=0.5))

    async def _score(self, claim: GroupClaim) -> None:
        view = await transcripts.load_group(self.store, claim.group_id)
        assert view.scenario is not None
        if view.scenario.id in self.script.judge_fails and claim.tries == 0:
            await scores.mark_unscored(self.store, claim, "judge_down", {"message": "no route to the judge"}, 0.05)
            return
        parts = []
        for member in view.members:
            if member.state != "completed":
                continue
            right = float(member.messages[-1].get("content") == view.scenario.reference)
            parts += [NewPart(member.id, "reward", right), NewPart(member.id, "checked", right, 0.0)]
        recipe = self.script.recipe(view.external_id or "")
        await scores.record_score(self.store, claim, new_score(recipe, parts=parts))

    # --- controller

    async def _control(self) -> None:
        with self.store.watch.on(Topic.SERVICE) as news:
            while True:
                await news.wait()
                for version in await versions.get_versions(Project(self.store, PROJECT), [VersionState.WRITTEN]):
                    if version.number in self.script.reject:
                        await versions.mark_version(self.store, version.id, VersionState.REJECTED, "probe_failed")
                        continue
                    await versions.mark_version(self.store, version.id, VersionState.LOADED)
                    await versions.mark_version(self.store, version.id, VersionState.GATED)
                    if self.script.promote:
                        await alias_moves.set_live(self.store, self.alias.id, version.id, why="gate")


def _luck(trajectory: str) -> float:
    """How hard an attempt is, in 0..1: of four in a group, a skill of 0.5 solves two."""
    return (int(trajectory.partition("~")[0]) % 4 + 0.5) / 4


class ScriptedTrainer:
    """Takes the groups that differ, and publishes a version with nothing in it."""

    def __init__(self, store: Store, alias: AliasView) -> None:
        self._store = store
        self._alias = alias
        self.owner = "scripted-trainer"
        self.target_note: str | None = None

    async def close(self) -> None:
        """Nothing is held."""

    async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        teaching: list[GroupClaim] = []
        trained: list[str] = []
        left = 0
        for claim in claimed:
            assert claim.score_id is not None
            rewards = await scores.score_rewards(self._store, claim.score_id)
            if len(set(rewards.values())) > 1:
                teaching.append(claim)
                trained += rewards
            else:
                left += len(rewards)
                await scores.exclude_group(self._store, claim, "zero_variance")
        left_out = {"zero_variance": left} if left else {}
        if not teaching:
            return StepReport(None, None, "no group can be trained on", left_out=left_out)
        alias = await aliases.get_alias(Project(self._store, self._alias.project_id), self._alias.name)
        assert alias.live_version_id is not None
        step = await steps.begin_step(self._store, alias.id, alias.live_version_id, campaign_id, groups=teaching)
        version = await versions.allocate_version(self._store, alias.id, alias.live_version_id, step_id=step.id)
        metrics = {"loss": 0.5, "kl_engine": 1e-7, "tokens_per_s": 1000.0}
        step = await steps.finish_step(
            self._store, step.id, version_id=version.id, path="/nowhere", engine_name=f"{ALIAS}@{version.number}",
            manifest_sha256="0" * 64, metrics=metrics, checkpoint_path=None, groups=teaching, trained=trained,
        )  # fmt: skip
        made = await versions.get_version(self._store, version.id)
        return StepReport(step, made, None, metrics, len(trained), left_out)


async def ledger_codes(store: Store, campaign_id: str) -> list[str]:
    """The codes of a campaign's ledger, in order."""
    return [entry.code for entry in await ledger.object_entries(store, "campaign", campaign_id)]


def hone_settings(data: Path, campaign: CampaignSettings, models: Sequence[str] = (), **sections: Any) -> HoneSettings:
    """All settings, with those of a campaign. `models`: other providers' models, by name."""
    others = [ModelSettings(name=name, model=f"openai/{name}") for name in models]
    given = {"trainer": TrainerSettings(min_groups=1), "proxy": ProxySettings(models=others)} | sections
    return HoneSettings(project=PROJECT, data=data, campaign=campaign, **given)


class RecordedProgress:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def steps(self) -> list[StepDone]:
        return [event for event in self.events if isinstance(event, StepDone)]

    def validations(self) -> list[Validation]:
        return [event for event in self.events if isinstance(event, Validation)]

    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice) and event.warning]


def write_user_folder(folder: Path, train: int = 4, val: int = 3) -> dict[str, Any]:
    """The user's agent and scenarios; returns the settings that name them."""
    folder.mkdir(exist_ok=True)
    (folder / "my_agent.py").write_text(AGENT)
    for name, count in (("train", train), ("val", val)):
        lines = [{"id": f"{name}-{i}", "input": f"{name} {i}", "reference": f"answer {name} {i}"} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "agent": "my_agent:run",
        "cwd": folder,
        "scenarios": folder / "train.jsonl",
        "val_scenarios": folder / "val.jsonl",
        "scenarios_per_step": 2,
        "group_size": 4,
        "steps": 3,
        "attempt_timeout_s": 60.0,
    }


def held_to_scenarios(data: Path, user: Path, **gate: Any) -> HoneSettings:
    """The settings of a learner whose alias is held to the scenarios of the user's folder."""
    given = {"scenarios": user / "val.jsonl", "agent": "my_agent:run", "success": "my_agent:solved"} | gate
    alias = AliasSettings(gate=GateSettings.model_validate(given))
    return hone_settings(data, CampaignSettings(cwd=user, attempt_timeout_s=60.0), aliases={ALIAS: alias})


async def run_campaign(
    data: Path,
    url: str,
    settings: Mapping[str, Any],
    told: RecordedProgress,
    *,
    fresh: bool = False,
    resume: str | None = None,
    judge: JudgeSettings | None = None,
    models: Sequence[str] = (),
    track: TrackSettings | None = None,
    recording: RecorderSettings | None = None,
    trainer: TrainerSettings | None = None,
    scripted: TrainerSettings | None = None,
) -> CampaignEnded:
    """`hone train` with a scripted trainer (`scripted`: its settings), or by the settings of the real one.

    `recording`: the store's.
    """
    everything = hone_settings(
        data,
        CampaignSettings.model_validate(settings),
        recorder=recording or RecorderSettings(),
        judge=judge or JudgeSettings(),
        models=models,
        track=track or TrackSettings(),
        trainer=trainer or scripted or TrainerSettings(min_groups=1),
    )
    if resume is None:
        chosen = record.plan_campaign(everything.campaign, fresh=fresh)
    else:
        chosen = await record.load_plan(data, everything.recorder, PROJECT, resume, settings)
    wanted = ServiceRequest(data, PROJECT, everything.recorder, url, found_timeout_s=10.0)

    async def opened(store: Store, alias: AliasView, _: object) -> ScriptedTrainer:
        return ScriptedTrainer(store, alias)

    return await train(chosen, everything, wanted, told, None if trainer else opened)


async def run_evaluation(
    data: Path,
    url: str,
    names: Sequence[str],
    file: Path,
    settings: Mapping[str, Any],
    told: RecordedProgress,
    *,
    attempts: int = 4,
    seeds: int = 1,
    fresh: bool = False,
    judge: JudgeSettings | None = None,
    models: Sequence[str] = (),
    recording: RecorderSettings | None = None,
) -> EvaluationResult:
    """`hone eval` on a ring's store. `recording`: the store's."""
    everything = hone_settings(
        data,
        CampaignSettings.model_validate(settings),
        recorder=recording or RecorderSettings(),
        judge=judge or JudgeSettings(),
        models=models,
    )
    asked = plan_evaluation(
        everything.campaign, names, file, attempts=attempts, seeds=seeds, fresh=fresh, providers=models
    )
    wanted = ServiceRequest(data, PROJECT, everything.recorder, url, found_timeout_s=10.0)
    return await evaluation.run_evaluation(asked, everything, wanted, told)
