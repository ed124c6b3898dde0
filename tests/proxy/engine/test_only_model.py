"""The only model of an engine is found without its name; several, or no answer, are errors that say what to give."""

from __future__ import annotations

import pytest

from proxy.engine.replica import find_only_model
from proxy.errors import ConfigError
from tests.proxy.scripted_engine import ScriptedEngine


async def test_one_model_may_have_several_names_and_adapters(engine: ScriptedEngine) -> None:
    engine.bases = ("first", "second")  # of one root
    engine.adapters["first@1"] = "/adapter"
    assert await find_only_model(engine.url, "engine-key") == "first"


async def test_several_models_are_named(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from proxy.engine.replica import Replica, ServedModels

    async def served(_self: Replica) -> ServedModels:
        return ServedModels({"one": "/one", "two": "/two"}, {})

    monkeypatch.setattr(Replica, "served", served)
    with pytest.raises(ConfigError, match="serves one, two: name one with --model"):
        await find_only_model(engine.url, None)


async def test_no_answer_and_a_wrong_key_are_errors(engine: ScriptedEngine) -> None:
    with pytest.raises(ConfigError, match=r"engine\.api_key"):
        await find_only_model(engine.url, "wrong")
    with pytest.raises(ConfigError, match="name its model with --model"):
        await find_only_model("http://127.0.0.1:9", None)
