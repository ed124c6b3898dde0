"""All sections as one: every setting is explained, and what cannot be together is refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from proxy.errors import ConfigError
from proxy.settings.descriptions import field_descriptions
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings
from tests.proxy.settings.written import MODELS, write

pytestmark = pytest.mark.usefixtures("bare")


def models_under(model: type[BaseModel]) -> list[type[BaseModel]]:
    found = [model]
    for field in model.model_fields.values():
        todo: list[Any] = [field.annotation]
        while todo:
            annotation = todo.pop()
            if inspect.isclass(annotation) and not get_args(annotation):
                if issubclass(annotation, BaseModel):
                    found += models_under(annotation)
            else:
                todo += get_args(annotation)
    return found


def test_every_setting_has_a_docstring() -> None:
    bare = [
        f"{model.__name__}.{name}"
        for model in models_under(HoneSettings)
        for name in model.model_fields
        if not field_descriptions(model).get(name)
    ]
    assert bare == []


def test_a_rank_that_the_engine_would_refuse_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.rank 64 is higher than engine\.max_lora_rank 8"):
        load_settings(None, {"trainer.rank": 64, "engine.max_lora_rank": 8})


def test_models_of_other_providers_and_fallbacks_are_read(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, MODELS), {}).settings
    assert settings.fallbacks() == {"helpdesk": "gpt-today"}
    assert settings.model_names() == ["helpdesk", "gpt-today"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MODELS.replace('fallback = "gpt-today"', 'fallback = "gpt"'), "fallback is 'gpt'"),
        (MODELS.replace('name = "gpt-today"', 'name = "helpdesk"').replace("fallback", "# "), "rename one of them"),
        (MODELS.replace('name = "gpt-today"', 'name = "gpt@2"'), r"proxy\.models\[0\]\.name"),
        (MODELS.replace("vertex_token", "api_base"), "api_base"),
        (MODELS.replace("params =", 'api_key_env = "KEY"\nparams ='), "not both"),
        (MODELS + MODELS.split("[aliases")[0], "two models are called 'gpt-today'"),
    ],
)
def test_models_that_contradict_something_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_settings(write(tmp_path, text), {})


RECIPES = "[judge.recipes.strict]\nmissing = 'hold'\n[aliases.helpdesk]\njudge_recipe = 'strict'\n[aliases.other]\n"


def test_the_judge_knows_which_alias_names_which_recipe(tmp_path: Path) -> None:
    judge = load_settings(write(tmp_path, RECIPES), {}).settings.judge
    assert [judge.recipe_of(alias) for alias in ("helpdesk", "other", None)] == ["strict", "default", "default"]
    assert judge.recipe_of("helpdesk", "default") == "default"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (RECIPES.replace("= 'strict'", "= 'stict'"), r"aliases\.helpdesk\.judge_recipe is 'stict'.*default, strict\)"),
        (RECIPES + "[campaign]\njudge_recipe = 'lax'\n", r"campaign\.judge_recipe is 'lax'.*default, strict\)"),
    ],
)
def test_a_recipe_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_settings(write(tmp_path, text), {})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("temperature = 0.05", "nearly greedy"),
        ("temperature = 0", "nearly greedy"),
        ("temperature = nan", "less than or equal to 2"),
        ("temperature = 3", "less than or equal to 2"),
        ("top_p = 0.95", "top_p 0.95 changes the sampled"),
        ("top_k = 20", "top_k 20 changes the sampled"),
        ("repetition_penalty = 1.1", "repetition_penalty 1.1 changes the sampled"),
        ("seed = 3", "seed"),
    ],
)
def test_an_override_under_which_nothing_could_be_trained_is_refused(tmp_path: Path, values: str, told: str) -> None:
    text = f"[aliases.helpdesk.sampling]\noverride = {{ {values} }}\n"
    with pytest.raises(ConfigError, match=told):
        load_settings(write(tmp_path, text), {})


def test_an_override_is_read_by_its_alias(tmp_path: Path) -> None:
    text = "[aliases.helpdesk.sampling]\noverride = { temperature = 0.7, top_p = 1 }\n[aliases.other]\n"
    loaded = load_settings(write(tmp_path, text), {})
    assert loaded.settings.overrides() == {"helpdesk": {"temperature": 0.7, "top_p": 1.0}}


def test_shadow_answers_are_read_by_their_alias_and_are_off_without_a_share(tmp_path: Path) -> None:
    text = "[aliases.helpdesk.shadow]\nshare = 0.1\nn = 3\nat = 'first'\nbudget = 9\n[aliases.other.shadow]\nn = 8\n"
    loaded = load_settings(write(tmp_path, text), {})
    [(name, shadow)] = loaded.settings.shadows().items()
    assert (name, shadow.share, shadow.n, shadow.at, shadow.budget) == ("helpdesk", 0.1, 3, "first", 9)
