"""A real vLLM with the flags of `proxy.engine.command`: loading, probing and unloading adapters, and its end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from proxy.engine.answers import EngineQuestion
from proxy.engine.replica import Replica
from proxy.errors import AdapterError
from proxy.gate.sanity import SanityBounds, ask_both, check_sanity
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, EngineSettings, ProxySettings
from proxy.versions.controller import Controller
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.queue.training import adapter_trials
from recorder.registry.aliases import get_alias
from recorder.registry.versions import VersionView, allocate_version, get_version, mark_version
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from tests.e2e.conftest import MODEL, Stack
from tests.e2e.test_faults import answers, kill_engine_in_a_stream
from tests.proxy.until import until
from tests.stores import Stores
from trainer.errors import UnsupportedModel
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.engine_trial import require_accepted

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

START_S = 200.0
BASE = "tiny-qwen3"
PROMPTS = [[5, 6, 7, 8], [40, 41, 42], list(range(20, 60))]
NAMED = [3, 17, 99, 200]


@dataclass
class Running:
    """A real engine, its settings as a controller has them, and the stack that keeps it running."""

    settings: EngineSettings
    key: str
    stack: Stack
    replica: Replica


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(killable_stack: Stack) -> AsyncIterator[Running]:
    table = tomllib.loads(killable_stack.config.read_text())["engine"]
    replica = Replica(killable_stack.engine_url, killable_stack.engine_key)
    yield Running(EngineSettings(**table), killable_stack.engine_key, killable_stack, replica)
    await replica.close()


@pytest.fixture(scope="module")
def peft_model() -> PeftModel:
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    assert isinstance(model, PeftModel)
    return model.eval()


def logprobs(model: PeftModel, *, adapted: bool) -> list[list[float]]:
    """What transformers gives the named tokens after each prompt, with or without the adapter."""
    rows = []
    with torch.no_grad():
        for prompt in PROMPTS:
            if adapted:
                logits = model(input_ids=torch.tensor([prompt])).logits
            else:
                with model.disable_adapter():
                    logits = model(input_ids=torch.tensor([prompt])).logits
            rows.append(torch.log_softmax(logits[0, -1].float(), -1)[NAMED].tolist())
    return rows


def publish(model: PeftModel, adapters: Path, name: str, new: list[list[float]], parent: list[list[float]]) -> Path:
    """Write a version's folder with its manifest and probe."""
    draft = adapters / f"draft-{name}"
    model.save_pretrained(draft)
    contexts: list[dict[str, Any]] = [
        {"prompt_token_ids": prompt, "token_ids": NAMED, "new": n, "parent": p}
        for prompt, n, p in zip(PROMPTS, new, parent, strict=True)
    ]
    (draft / "probe.json").write_text(json.dumps({"contexts": contexts}))
    names = ("adapter_model.safetensors", "adapter_config.json", "probe.json")
    files = {n: hashlib.sha256((draft / n).read_bytes()).hexdigest() for n in names}
    manifest = json.dumps({"files": files}).encode()
    (draft / "manifest.json").write_bytes(manifest)
    path = adapters / f"{name}-{hashlib.sha256(manifest).hexdigest()[:12]}"
    draft.rename(path)
    return path


async def test_the_engine_serves_both_names_and_refuses_a_wrong_key(running: Running) -> None:
    served = await running.replica.served()
    assert served.bases == {BASE: str(MODEL), "helpdesk": str(MODEL)}
    assert served.adapters == {}
    stranger = Replica(running.replica.url, "wrong")
    with pytest.raises(Exception, match=r"engine\.api_key"):
        await stranger.served()
    await stranger.close()


async def test_named_tokens_logprobs_are_transformers_own(running: Running, peft_model: PeftModel) -> None:
    expected = logprobs(peft_model, adapted=False)
    for prompt, row in zip(PROMPTS, expected, strict=True):
        answer = await running.replica.logprobs(BASE, prompt, NAMED)
        assert answer == pytest.approx(row, abs=1e-4)


async def test_an_adapter_is_loaded_answers_as_itself_and_is_unloaded(
    running: Running, peft_model: PeftModel, folder: Path
) -> None:
    new, parent = logprobs(peft_model, adapted=True), logprobs(peft_model, adapted=False)
    path = publish(peft_model, folder / "by-hand", "x@1", new, parent)
    await running.replica.load(path.name, str(path))
    await running.replica.load(path.name, str(path))  # loading it again is fine: it shows our path
    for prompt, row in zip(PROMPTS, new, strict=True):
        assert await running.replica.logprobs(path.name, prompt, NAMED) == pytest.approx(row, abs=1e-4)
    with pytest.raises(AdapterError) as caught:
        await running.replica.load(path.name, str(folder / "elsewhere"))
    assert caught.value.code == "name_taken"
    await running.replica.unload(path.name)
    await running.replica.unload(path.name)
    assert (await running.replica.served()).adapters == {}


async def test_an_adapter_answers_on_the_ids_that_a_chat_brings(
    running: Running, peft_model: PeftModel, folder: Path
) -> None:
    new, parent = logprobs(peft_model, adapted=True), logprobs(peft_model, adapted=False)
    path = publish(peft_model, folder / "given-ids", "y@1", new, parent)
    await running.replica.load(path.name, str(path))
    body: dict[str, Any] = {"model": path.name, "messages": [{"role": "user", "content": "something else"}]}
    body |= {"max_tokens": 2, "return_token_ids": True, "temperature": 0.0, "logprobs": True, "top_logprobs": 0}
    headers = {"authorization": f"Bearer {running.key}"}
    async with httpx.AsyncClient(base_url=running.replica.url, headers=headers, timeout=60) as engine:
        for prompt in PROMPTS:
            asked = body | {"kv_transfer_params": {"prompt_token_ids": prompt}}
            answer = (await engine.post("/v1/chat/completions", json=asked)).raise_for_status().json()
            assert answer["prompt_token_ids"] == prompt
            first = answer["choices"][0]["token_ids"][0]
            with torch.no_grad():
                logits = peft_model(input_ids=torch.tensor([prompt])).logits[0, -1].float()
            assert first == int(logits.argmax())
            streamed = (await engine.post("/v1/chat/completions", json=asked | {"stream": True})).raise_for_status()
            chunk = json.loads(streamed.text.split("\n\n")[0].removeprefix("data: "))
            assert chunk["prompt_token_ids"] == prompt
    await running.replica.unload(path.name)


async def test_an_answer_has_the_same_logprobs_when_it_is_sampled_and_when_it_is_a_prompt(
    running: Running, peft_model: PeftModel, folder: Path
) -> None:
    path = publish(
        peft_model, folder / "asked", "z@1", logprobs(peft_model, adapted=True), logprobs(peft_model, adapted=False)
    )
    await running.replica.load(path.name, str(path))
    tools = [{"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}]
    question = EngineQuestion([{"role": "user", "content": "Where is order 4711?"}], tools, max_tokens=60)
    for name in (BASE, path.name):
        said = await running.replica.answer(name, question)
        assert len(said.token_ids) == len(said.logprobs) > 0
        told = await running.replica.logprobs_of(name, [*said.prompt_ids, *said.token_ids])
        assert told[len(said.prompt_ids) - 1 :] == pytest.approx(said.logprobs, abs=1e-4)
    bounds = SanityBounds(kl_max=1.0, length_times=100.0)
    same = await ask_both(running.replica, [question] * 2, BASE, BASE)
    near = await check_sanity(running.replica, same, {"live": BASE}, bounds)
    assert near.fault is None
    assert near.figures["kl_live"] == pytest.approx(0, abs=1e-5)
    other = await ask_both(running.replica, [question] * 2, path.name, BASE)
    far = await check_sanity(running.replica, other, {"live": BASE}, bounds)
    assert abs(far.figures["kl_live"]) > 1e-5, "another distribution, though a mean of so few tokens has any sign"
    await running.replica.unload(path.name)


async def said(running: Running, model: str, prompt: list[int]) -> tuple[list[int], list[float]]:
    """Two dozen tokens of a model's own choice, and their logprobs."""
    asked = {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0.0, "ignore_eos": True}
    asked |= {"logprobs": 0, "return_token_ids": True}
    headers = {"authorization": f"Bearer {running.key}"}
    async with httpx.AsyncClient(base_url=running.replica.url, headers=headers, timeout=100) as engine:
        answer = (await engine.post("/v1/completions", json=asked)).raise_for_status().json()["choices"][0]
    return answer["token_ids"], answer["logprobs"]["token_logprobs"]


async def test_the_base_is_the_base_beside_adapters_in_every_slot(
    running: Running, peft_model: PeftModel, folder: Path
) -> None:
    new, parent = logprobs(peft_model, adapted=True), logprobs(peft_model, adapted=False)
    names = [f"full@{n}" for n in range(running.settings.max_loras)]
    paths = [publish(peft_model, folder / "full", name, new, parent) for name in names]
    prompts = [[5 + n, 6, 7, 8 + n] for n in range(6)]
    for path in paths:
        await running.replica.load(path.name, str(path))
        await said(running, path.name, prompts[0])  # only an adapter that was asked takes a slot
    models = [BASE, *(path.name for path in paths)]
    alone = {(model, n): await said(running, model, prompt) for model in models for n, prompt in enumerate(prompts)}
    for path in paths:  # ten times what may differ below
        assert all(alone[path.name, n][1] != pytest.approx(alone[BASE, n][1], abs=1e-3) for n in range(len(prompts)))
    together = await asyncio.gather(*(said(running, model, prompts[n]) for model, n in alone))
    for which, (ids, chosen) in zip(alone, together, strict=True):
        assert ids == alone[which][0], which
        assert chosen == pytest.approx(alone[which][1], abs=1e-4), which
    for path in paths:
        await running.replica.unload(path.name)


async def test_a_folder_that_is_missing_or_empty_is_refused_and_the_engine_lives(
    running: Running, folder: Path
) -> None:
    (folder / "empty").mkdir()
    for path in (folder / "nowhere", folder / "empty"):
        with pytest.raises(AdapterError) as caught:
            await running.replica.load("broken", str(path))
        assert caught.value.code == "load_refused"
    assert BASE in (await running.replica.served()).bases


@pytest.fixture
def recording(stores: Stores, folder: Path) -> Iterator[RecorderSettings]:
    """The store of the data folder."""
    with stores.unmade(folder / "data") as made:
        yield made


@asynccontextmanager
async def controlled(running: Running, data: Path, recording: RecorderSettings) -> AsyncIterator[ServiceRouter]:
    """A store, and a proxy's controller beside the real engine."""
    async with opened(data, recording, migrate=True) as store, AsyncExitStack() as ending:
        versions = ServiceRouter(Project(store, "default"), ProxySettings())
        recorder = Recorder(store, recording)
        await recorder.start()
        ending.push_async_callback(recorder.stop)
        controller = Controller(
            Project(store, "default"),
            versions,
            recorder,
            engine=running.settings.model_copy(update={"urls": [running.replica.url]}),
            proxy=ProxySettings(),
            follower=SettingsFollower(Project(store, "default"), HoneSettings(aliases={"helpdesk": AliasSettings()})),
            default_base=BASE,
            engine_key=running.key,
        )
        await ending.enter_async_context(controller.running())
        await versions.start()
        ending.push_async_callback(versions.stop)
        await until(lambda: bool(versions.snapshot.up()))
        yield versions


@asynccontextmanager
async def opened(data: Path, recording: RecorderSettings, *, migrate: bool = False) -> AsyncIterator[Store]:
    """The store, as another process has it."""
    store = await open_store(data, recording, migrate=migrate)
    try:
        yield store
    finally:
        await store.close()


async def write(store: Store, path: Path) -> VersionView:
    """A written version of helpdesk, from version 0."""
    alias = await get_alias(Project(store, "default"), "helpdesk")
    assert alias.live_version_id is not None
    version = await allocate_version(store, alias.id, alias.live_version_id)
    manifest = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    return await mark_version(
        store, version.id, VersionState.WRITTEN, path=str(path), engine_name=path.name, manifest_sha256=manifest
    )


async def ended(store: Store, version: VersionView) -> VersionView:
    """The version once it is live or rejected."""

    async def look() -> VersionView | None:
        now = await get_version(store, version.id)
        return now if now.state in (VersionState.LIVE, VersionState.REJECTED) else None

    return await until(look, within_s=START_S)


async def test_a_trainer_s_adapter_is_tried_by_the_engine_before_any_version_is_made(
    running: Running, folder: Path, stores: Stores
) -> None:
    """One of its rank is taken and leaves nothing loaded; one of a higher rank is refused with the setting's name."""
    data = folder / "trial"
    with stores.unmade(data) as recording:
        async with controlled(running, data, recording), opened(data, recording) as store:
            alias = await get_alias(Project(store, "default"), "helpdesk")
            given = {"base": str(MODEL), "device": "cpu", "dtype": "float32"}
            async with await AliasTrainer.open(store, alias, TrainerSettings(**given, rank=8), data) as trainer:
                assert await require_accepted(store, alias, START_S) is None
                tried = await adapter_trials.find_trial(store, alias.id)
                assert tried is not None
                assert tried.answered_at is not None
                assert (await running.replica.served()).adapters == {}
                assert trainer.owner
            async with await AliasTrainer.open(store, alias, TrainerSettings(**given, rank=16), data):
                with pytest.raises(UnsupportedModel, match=r"rank 16 .*engine\.max_lora_rank"):
                    await require_accepted(store, alias, START_S)
            assert list((data / "adapters").glob("*")) == []


async def test_an_adapter_that_vllm_itself_refuses_is_refused_in_its_words(
    running: Running, peft_model: PeftModel, folder: Path, stores: Stores
) -> None:
    """What the proxy's checks of the files let pass: DoRA, which the trainer never writes."""
    data = folder / "refused"
    with stores.unmade(data) as recording:
        async with controlled(running, data, recording), opened(data, recording) as store:
            alias = await get_alias(Project(store, "default"), "helpdesk")
            rows = logprobs(peft_model, adapted=True)
            path = publish(peft_model, data / "adapters", "helpdesk@trial", rows, rows)
            config = json.loads((path / "adapter_config.json").read_text()) | {"use_dora": True}
            (path / "adapter_config.json").write_text(json.dumps(config))
            manifest = json.loads((path / "manifest.json").read_text())
            manifest["files"]["adapter_config.json"] = hashlib.sha256(
                (path / "adapter_config.json").read_bytes()
            ).hexdigest()
            (path / "manifest.json").write_text(json.dumps(manifest))
            trial = await adapter_trials.begin_trial(Project(store, "default"), alias.id)
            sha = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
            await adapter_trials.offer_trial(store, trial, engine_name=path.name, path=str(path), manifest_sha256=sha)
            with pytest.raises(UnsupportedModel, match="refused to load"):
                await require_accepted(store, alias, START_S)
            assert (await running.replica.served()).adapters == {}


async def test_the_controller_serves_a_true_version_rejects_a_false_one_and_restores_after_a_kill(
    running: Running, peft_model: PeftModel, folder: Path, recording: RecorderSettings
) -> None:
    new, parent = logprobs(peft_model, adapted=True), logprobs(peft_model, adapted=False)
    data = folder / "data"
    async with controlled(running, data, recording) as versions, opened(data, recording) as store:
        true = await write(store, publish(peft_model, folder / "adapters", "helpdesk@1", new, parent))
        live = await ended(store, true)
        assert (live.state, live.verified) == (VersionState.LIVE, "logprobs"), live.reason
        assert live.metrics["probe_to_new"] < 1e-5
        # the probe of this one speaks of other weights than its own, as a stale cache would answer
        false = await write(store, publish(peft_model, folder / "adapters", "helpdesk@2", parent, new))
        rejected = await ended(store, false)
        assert rejected.state is VersionState.REJECTED
        assert (rejected.reason or "").startswith("probe_mismatch")
        assert list((await running.replica.served()).adapters) == [live.engine_name]
        await until(lambda: versions.route(versions.snapshot.aliases["helpdesk"]).version.id == live.id)

        killed = running.stack.pid("engine")
        await asyncio.to_thread(kill_engine_in_a_stream, running.stack)
        await until(lambda: not versions.snapshot.up())
        await until(lambda: bool(versions.snapshot.up()), within_s=START_S)
        route = versions.route(versions.snapshot.aliases["helpdesk"])
        assert route.engine_model == live.engine_name
        for prompt, row in zip(PROMPTS, new, strict=True):
            assert await running.replica.logprobs(route.engine_model, prompt, NAMED) == pytest.approx(row, abs=1e-4)
        assert running.stack.pid("engine") != killed
    await until(lambda: asyncio.to_thread(answers, running.stack), within_s=START_S)
