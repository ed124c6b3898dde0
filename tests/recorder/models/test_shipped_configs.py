"""The configs that Hone ships: their shapes give the published counts of parameters."""

from __future__ import annotations

import pytest

from recorder.models.base_model import read_base_model
from recorder.models.shipped_configs import SHIPPED, shipped_folder, shipped_names, shipped_source

# What the model cards say, in thousand millions: beside source.json, a second source of the same count.
MODEL_CARDS = {
    "Qwen3-0.6B": 0.6, "Qwen3-1.7B": 1.7, "Qwen3-4B": 4.0, "Qwen3-8B": 8.2, "Qwen3-14B": 14.8, "Qwen3-32B": 32.8,
    "Qwen3-30B-A3B": 30.5, "Qwen2.5-0.5B-Instruct": 0.49, "Qwen2.5-1.5B-Instruct": 1.54, "Qwen2.5-3B-Instruct": 3.09,
    "Qwen2.5-7B-Instruct": 7.61, "Qwen2.5-14B-Instruct": 14.7, "Qwen2.5-32B-Instruct": 32.5,
    "Llama-3.2-1B-Instruct": 1.23, "Llama-3.2-3B-Instruct": 3.21, "Llama-3.1-8B-Instruct": 8.03,
    "SmolLM2-135M-Instruct": 0.135, "SmolLM2-360M-Instruct": 0.36, "SmolLM2-1.7B-Instruct": 1.7,
    "gemma-3-1b-it": 1.0, "gemma-3-4b-it": 4.3, "gpt-oss-20b": 20.9, "Mistral-7B-Instruct-v0.3": 7.25,
}  # fmt: skip


def test_every_model_that_people_name_is_there() -> None:
    assert set(shipped_names()) == set(MODEL_CARDS)


@pytest.mark.parametrize("name", shipped_names())
def test_the_shapes_give_the_published_count(name: str) -> None:
    model = read_base_model(SHIPPED / name, needs_weights=False)
    assert model.parameters is not None
    assert model.parameters.total == shipped_source(SHIPPED / name)["parameters"]
    assert model.parameters.total / 1e9 == pytest.approx(MODEL_CARDS[name], rel=0.02)
    assert model.parameter_bytes is not None
    assert model.parameter_bytes.total == 2 * model.parameters.total
    assert not model.has_weights


def test_active_parameters_of_a_mixture_are_those_of_its_card() -> None:
    model = read_base_model(SHIPPED / "Qwen3-30B-A3B", needs_weights=False)
    assert (model.active_parameters or 0) / 1e9 == pytest.approx(3.3, abs=0.06)
    assert model.parameters is not None
    assert (model.parameters.total - model.parameters.embedding - model.parameters.head) / 1e9 == pytest.approx(
        29.9, abs=0.05
    )


@pytest.mark.parametrize("name", ["Qwen3-8B", "qwen3-8b", "Qwen/Qwen3-8B"])
def test_one_is_found_by_its_name_and_its_id(name: str) -> None:
    assert shipped_folder(name) == SHIPPED / "Qwen3-8B"


@pytest.mark.parametrize("name", ["Qwen3", "other/Qwen3-8B", "../shipped/Qwen3-8B", ""])
def test_no_other_name_is_taken_for_one(name: str) -> None:
    assert shipped_folder(name) is None
