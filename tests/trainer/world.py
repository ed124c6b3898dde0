"""A store with real recorded runs, whose engine is plain transformers: the alias trainer is tested against these.

The engine here is independent of the trainer's code: whole-sequence forward passes of the base, with PEFT's own loading
of a version's directory.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    ParentCall,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
    TrajectoryRef,
)
from recorder.queue import claims
from recorder.queue.claims import GroupClaim
from recorder.queue.groups.same_request import open_shadow
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.queue.judging.turn_values import turn_extra
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.fingerprint import base_fingerprint
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import CallState, Confidence, Origin, Purpose, VersionState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import CallView
from tests.recorder.score_rows import new_score
from tests.trainer.building import random_ids
from tests.trainer.plain_settings import PLAIN
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer

PROJECT = "default"


class Engine:
    """Answers with given tokens and says how likely they were."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._models: dict[str | None, Any] = {}

    def logprobs(
        self, path: str | None, prompt: Sequence[int], sampled: Sequence[int], temperature: float
    ) -> list[float]:
        """Of the sampled ids after the prompt, at a temperature, under the version in `path`."""
        if path not in self._models:
            base = AutoModelForCausalLM.from_pretrained(self._base)
            self._models[path] = base if path is None else PeftModel.from_pretrained(base, path)
        with torch.no_grad():
            logits = self._models[path](input_ids=torch.tensor([[*prompt, *sampled]])).logits[0]
        tempered = torch.log_softmax(logits.float() / temperature, -1)
        return [float(tempered[len(prompt) + i - 1, token]) for i, token in enumerate(sampled)]


class World:
    """A store, a recorder and an engine for one alias."""

    def __init__(self, store: Store, recorder: Recorder, alias: AliasView, base: Path, data: Path) -> None:
        self.store = store
        self.alias = alias
        self.base = base
        self.data = data
        self._recorder = recorder
        self._engine = Engine(base)
        self.raw = False  # the engine gives logprobs before temperature
        self.temperature = 0.8  # of what is sampled

    @classmethod
    @asynccontextmanager
    async def opened(cls, data: Path, base: Path, settings: RecorderSettings | None = None) -> AsyncIterator[World]:
        """Until left. Without settings, over a new store in the data folder."""
        async with AsyncExitStack() as stack:
            store = await open_store(data, settings or RecorderSettings(), migrate=True)
            stack.push_async_callback(store.close)
            fingerprint = base_fingerprint(base, "float32")
            alias = await aliases.ensure_alias(Project(store, PROJECT), "org/helpdesk", "tiny", fingerprint)
            recorder = Recorder(store, settings or RecorderSettings())
            await recorder.start()
            stack.push_async_callback(recorder.stop)
            yield cls(store, recorder, alias, base, data)

    async def trainer(self, **settings: Any) -> AliasTrainer:
        """A trainer of the alias, with what the defaults add to a step off, unless the settings say otherwise."""
        given = {
            **PLAIN,
            "base": str(self.base),
            "device": "cpu",
            "rank": 4,
            "alpha": 8.0,
            "lr": 1e-2,
            "token_budget": 256,
            **settings,
        }
        return await AliasTrainer.open(self.store, self.alias, TrainerSettings(**given), self.data)

    async def group(
        self,
        name: str,
        rewards: Sequence[float | None],
        seed: int = 0,
        purpose: Purpose = Purpose.TRAIN,
        turns: int = 2,
        judge: str | None = None,
        rated: Sequence[Sequence[float]] = (),
    ) -> str:
        """A whole group, recorded, completed and scored, by a `judge` or by code. Returns its id.

        `rated`: the values of each member's turns, in their order.
        """
        ids = [await self.run(name, number, len(rewards), seed, purpose, turns) for number in range(len(rewards))]
        claim = await claims.claim_for_judging(Project(self.store, PROJECT), "judge", 60)
        assert claim is not None
        made_of = {scores.REWARD: None, "checked": 1.0}  # parts and their weights
        each = zip(ids, rewards, strict=True)
        parts = [NewPart(id_, part, reward, weight) for id_, reward in each for part, weight in made_of.items()]
        for id_, values in zip(ids, rated, strict=False):
            parts += [NewPart(id_, f"checked.{turn_extra(at)}", value) for at, value in enumerate(values, 1)]
        await scores.record_score(self.store, claim, new_score("recipe", parts=parts, judge_hash=judge))
        return claim.group_id

    async def run(self, group: str, number: int, size: int, seed: int, purpose: Purpose, turns: int) -> str:
        """A run recorded to its end. Returns its id."""
        live = await self.live()
        ids = random_ids(24, seed)
        parent: ParentCall | None = None
        messages: list[Mapping[str, Any]] = [{"role": "user", "content": f"{group}"}]
        for turn in range(turns):
            address = Address(
                trajectory=str(number), group=group, group_size=size, purpose=purpose, done=turn == turns - 1
            )
            body = hashlib.blake2b(f"{group} {number} {turn}".encode(), digest_size=16).digest()
            sampling = SamplingParameters(temperature=self.temperature)
            request = RecordedRequest(
                "chat", "/v1/chat/completions", "m", False, messages, None, None, {}, body, sampling
            )
            ref = await self._recorder.trajectory_at(PROJECT, self.alias.id, address, request, live.id)
            sampled = random_ids(6, 1000 * seed + 10 * number + turn)
            said = {"role": "assistant", "content": f"{number} {turn}"}
            logprobs = self._engine.logprobs(live.path, ids, sampled, 1.0 if self.raw else self.temperature)
            call_id, now = new_id("call"), time.time()
            await self._recorder.commit(
                RecordedCall(
                    call_id, PROJECT, address, Attribution("path", Confidence.STATED, ref, parent), request,
                    CallState.COMPLETE, self.alias.id, live.id, self.alias.base_fingerprint, ids,
                    [SampledChoice(0, said, sampled, logprobs, "stop")], None, None, 200, None, now, now, now,
                )
            )  # fmt: skip
            ids = ids + sampled + random_ids(4, 7)
            parent = ParentCall(call_id, 0)
            messages = [*messages, said, {"role": "user", "content": "go on"}]
        return ref.id

    async def shadow(self, call_id: str, rewards: Sequence[float]) -> str:
        """A turn of an ended run answered again, and scored: the live answer first. Returns the group's id."""
        opened = await open_shadow(self.store, call_id, len(rewards) - 1)
        assert opened is not None
        fork = (await transcripts.load_group(self.store, opened.id, with_tokens=True)).members[0]
        for number, ref in enumerate(opened.waiting):
            await self._again(fork.calls[0], ref, random_ids(5, 9000 + number))
        claim = await claims.claim_for_judging(Project(self.store, PROJECT), "judge", 60)
        assert claim is not None
        ids = [fork.id, *(ref.id for ref in opened.waiting)]
        parts = [NewPart(id_, scores.REWARD, reward) for id_, reward in zip(ids, rewards, strict=True)]
        await scores.record_score(self.store, claim, new_score("recipe", parts=parts))
        return claim.group_id

    async def _again(self, live: CallView, into: TrajectoryRef, sampled: list[int]) -> None:
        prompt, now = list(live.prompt_token_ids or ()), time.time()
        version = await versions.get_version(self.store, str(live.version_id))
        logprobs = self._engine.logprobs(version.path, prompt, sampled, 0.8)
        body, said = into.id.encode()[-16:], {"role": "assistant", "content": into.id}
        request = RecordedRequest(
            "chat",
            "/v1/chat/completions",
            "m",
            False,
            live.messages,
            None,
            None,
            {},
            body,
            SamplingParameters(temperature=0.8),
        )
        await self._recorder.commit(
            RecordedCall(
                new_id("call"), PROJECT, Address(origin=Origin.SHADOW, done=True),
                Attribution("shadow", Confidence.STATED, into), request, CallState.COMPLETE, self.alias.id, version.id,
                self.alias.base_fingerprint, prompt, [SampledChoice(0, said, sampled, logprobs, "stop")], None, None,
                200, None, now, now, now,
            )
        )  # fmt: skip

    async def claim(self, trainer: AliasTrainer, limit: int = 10) -> list[GroupClaim]:
        """Every scored group, for a trainer."""
        return await claims.claim_for_training(self.store, self.alias.id, trainer.owner, 60, limit=limit)

    async def live(self) -> VersionView:
        """The version that is live."""
        alias = await aliases.get_alias(Project(self.store, PROJECT), self.alias.name)
        assert alias.live_version_id is not None
        return await versions.get_version(self.store, alias.live_version_id)

    async def promote(self, version: VersionView) -> None:
        """Do what a proxy's controller does."""
        await versions.mark_version(self.store, version.id, VersionState.LOADED)
        await versions.mark_version(self.store, version.id, VersionState.GATED)
        await alias_moves.set_live(self.store, self.alias.id, version.id, why="gate")
