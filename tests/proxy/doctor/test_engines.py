"""What an engine's answers say about it: each thing that can be missing is named; one that lacks nothing passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.doctor.engines import check_engine as ask
from proxy.doctor.engines import check_engines as ask_all
from proxy.engine import replica
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, EngineSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.settings import AdapterSettings
from tests.proxy.raw_engine import CHUNKED, Raw, RawEngine, framed, sized
from tests.proxy.scripted_engine import ScriptedEngine

Change = Callable[[ScriptedEngine], None]


def settings(data: Path, base_model: str = "base") -> HoneSettings:
    return HoneSettings(data=data, aliases={"helpdesk": AliasSettings(base_model=base_model)})


async def findings(url: str, data: Path, base_model: str = "base", key: str = "engine-key") -> dict[str, Finding]:
    return {one.check: one async for one in ask(url, key, settings(data, base_model))}


async def test_an_engine_that_lacks_nothing_passes_and_is_left_as_it_was(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    found = await findings(engine.url, tmp_path)
    assert {one.verdict for one in found.values()} == {FindingLevel.FINE}
    assert "up to rank 32" in found["adapters"].found
    assert engine.adapters == {}
    assert list((tmp_path / "adapters").iterdir()) == []


def no_variable(engine: ScriptedEngine) -> None:
    engine.runtime_lora = False


def no_flag(engine: ScriptedEngine) -> None:
    engine.lora = False


def low_rank(engine: ScriptedEngine) -> None:
    engine.max_lora_rank = 1


def blind(engine: ScriptedEngine) -> None:
    engine.refuse_load = (404, "Loading lora x failed: No adapter found for /x")


async def test_an_engine_that_fetches_adapters_need_not_see_this_machines(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.disk = tmp_path / "host"
    given = settings(tmp_path).model_copy(update={"adapters": AdapterSettings(url=str(tmp_path / "shared"))})
    found = {one.check: one for one in await ask_all([engine.url], "engine-key", given)}
    assert found["adapters"].verdict is FindingLevel.NOTE
    assert "hone adapters sync" in found["adapters"].todo
    assert found["adapters.url"].verdict is FindingLevel.FINE
    assert "holds 0 adapters" in found["adapters.url"].found


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (no_variable, "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        (no_flag, "--enable-lora"),
        (low_rank, "--max-lora-rank 8"),
        (blind, "shared disk"),
    ],
)
async def test_what_is_missing_is_named(change: Change, named: str, engine: ScriptedEngine, tmp_path: Path) -> None:
    await engine.stop()
    change(engine)
    await engine.start()
    found = (await findings(engine.url, tmp_path))["adapters"]
    assert found.verdict is FindingLevel.WRONG
    assert named in found.todo


async def test_one_that_takes_everything_is_no_vllm_and_keeps_nothing(engine: ScriptedEngine, tmp_path: Path) -> None:
    engine.max_lora_rank = 10_000_000
    assert (await findings(engine.url, tmp_path))["adapters"].verdict is FindingLevel.NOTE
    assert engine.adapters == {}


async def test_a_wrong_key_and_a_silent_engine_are_told(engine: ScriptedEngine, tmp_path: Path) -> None:
    assert "engine.api_key" in (await findings(engine.url, tmp_path, key="other"))["engine"].found
    await engine.stop()
    gone = await findings(engine.url, tmp_path)
    assert list(gone) == ["engine"]
    assert gone["engine"].verdict is FindingLevel.WRONG
    assert "engine.urls" in gone["engine"].todo


@pytest.mark.parametrize(
    "models",
    [
        b"[" * 200_000,
        b"\xff\xfe",
        b"[1]",
        b'{"data": null}',
        b'{"data": "base"}',
        b'{"data": [1]}',
        b'{"data": [{"root": "x"}]}',
        b'{"data": [{"id": "base", "max_model_len": "long"}]}',
    ],
    ids=lambda models: models[:40].decode(errors="replace"),
)
async def test_what_is_no_vllm_is_told_as_that(models: bytes, tmp_path: Path) -> None:
    async with RawEngine() as server:
        server.models = Raw((sized(models),))
        found = await findings(server.url, tmp_path)
    assert list(found) == ["engine"]
    assert found["engine"].verdict is FindingLevel.WRONG
    assert "is it vLLM?" in found["engine"].found


async def test_an_answer_that_never_ends_is_waited_for_with_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "ANSWER_TIMEOUT_S", 0.5)
    async with RawEngine() as server:
        server.models = Raw((CHUNKED, framed(b"{")), then="drip")
        found = await findings(server.url, tmp_path)
    assert "did not end its answer" in found["engine"].found


async def test_a_base_that_is_not_served_is_told_with_what_is(engine: ScriptedEngine, tmp_path: Path) -> None:
    found = (await findings(engine.url, tmp_path, base_model="other"))["engine base"]
    assert found.verdict is FindingLevel.WRONG
    assert "which serves base" in found.found
    assert "[aliases.helpdesk]" in found.todo


async def test_weights_of_another_name_are_told(engine: ScriptedEngine, tmp_path: Path) -> None:
    engine.base_root = "/models/another"
    given = settings(tmp_path).model_copy(update={"engine": EngineSettings(base="org/this", urls=[engine.url])})
    found = {one.check: one async for one in ask(engine.url, "engine-key", given)}["engine base"]
    assert found.verdict is FindingLevel.NOTE
    assert "/models/another" in found.found


async def base_on_cpu(data: Path, url: str, engine: EngineSettings) -> Finding | None:
    asked = ask(url, "engine-key", settings(data).model_copy(update={"engine": engine}))
    return {one.check: one async for one in asked}.get("base on a cpu")


async def test_a_given_engine_on_a_cpu_is_told_what_becomes_of_its_base(engine: ScriptedEngine, tmp_path: Path) -> None:
    found = await base_on_cpu(tmp_path, engine.url, EngineSettings(urls=[engine.url], device="cpu"))
    assert found is not None
    assert found.verdict is FindingLevel.NOTE
    assert "`hone engine`" in found.todo


@pytest.mark.parametrize(
    "given", [{"device": "cpu"}, {"urls": ["http://a:1"], "device": "cuda"}, {"urls": ["http://a:1"]}], ids=str
)
async def test_no_word_of_it_where_hone_starts_the_engine_or_it_is_not_said_to_be_a_cpus(
    given: dict[str, object], engine: ScriptedEngine, tmp_path: Path
) -> None:
    assert await base_on_cpu(tmp_path, engine.url, EngineSettings.model_validate(given)) is None


async def test_engines_of_two_bases_are_told(engine: ScriptedEngine, tmp_path: Path) -> None:
    second = ScriptedEngine(key="engine-key")
    await second.start()
    silent = "http://127.0.0.1:9"
    try:
        urls = [engine.url, second.url, silent]
        second.base_root = "/elsewhere/base"  # a folder of that name on another machine
        alike = await ask_all(urls, "engine-key", settings(tmp_path))
        assert [one.found for one in alike if one.verdict is FindingLevel.WRONG and silent not in one.found] == []
        second.base_root = "/models/another"
        told = await ask_all(urls, "engine-key", settings(tmp_path))
    finally:
        await second.stop()
    [found] = [one for one in told if "/models/another" in one.found]
    assert found.verdict is FindingLevel.WRONG
    assert engine.url in found.found
    assert second.url in found.found
    assert "engine.urls" in found.todo


async def media_of(data: Path, url: str, config: str) -> Finding | None:
    base = data / "base"
    base.mkdir()
    (base / "config.json").write_text(config)
    (base / "model.safetensors").write_bytes(b"weights")
    given = settings(data).model_copy(update={"engine": EngineSettings(base=str(base), urls=[url])})
    return {one.check: one async for one in ask(url, "engine-key", given)}.get("media")


async def test_a_base_that_reads_pictures_is_told_what_is_not_trained_on(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    found = await media_of(tmp_path, engine.url, '{"vision_config": {"hidden_size": 8}, "audio_config": {"a": 1}}')
    assert found is not None
    assert found.verdict is FindingLevel.NOTE
    assert "vision and audio" in found.found


@pytest.mark.parametrize("config", ["{}", "[]", "{", '{"vision_config": null}'])
async def test_no_word_of_media_for_a_base_of_text(engine: ScriptedEngine, tmp_path: Path, config: str) -> None:
    assert await media_of(tmp_path, engine.url, config) is None
