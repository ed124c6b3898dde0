"""Kinds of layers, and the values that a config.json omits: as transformers has them."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from recorder.models.families import FAMILIES, LAYER_TYPES, layer_kinds, text_config

OF_THE_FORM = {"linear": "linear_attention", "full": "full_attention", "sliding": "sliding_attention"}


def has_layer_types(family: str) -> bool:
    return isinstance(getattr(CONFIG_MAPPING[family](), "layer_types", None), list)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_defaults_are_those_of_transformers(family: str) -> None:
    real = CONFIG_MAPPING[family]()
    for name, value in FAMILIES[family].defaults.items():
        there = getattr(real, name)
        assert (there or 0) == (value or 0), name


@pytest.mark.parametrize("family", [one for one in sorted(FAMILIES) if has_layer_types(one)])
@pytest.mark.parametrize("more", [{}, {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3}])
def test_the_kinds_of_layers_are_those_of_transformers(family: str, more: dict[str, Any]) -> None:
    given = {"num_hidden_layers": 13, **more}
    real = CONFIG_MAPPING[family](**given).layer_types
    ours = layer_kinds(text_config({"model_type": family, **given}))
    assert [LAYER_TYPES[one] for one in real] == list(ours)


def test_layer_types_of_the_config_come_first() -> None:
    types = ["full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv", "mamba", "new"]
    config = text_config({"model_type": "qwen3", "num_hidden_layers": 7, "layer_types": types})
    assert layer_kinds(config) == ("full", "sliding", "chunked", "linear", "linear", "linear", "unknown")


@pytest.mark.parametrize(("window", "kind"), [(4096, "sliding"), (None, "full")])
def test_a_window_of_mistral_is_in_every_layer(window: int | None, kind: str) -> None:
    config = text_config({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": window})
    assert layer_kinds(config) == (kind, kind)


def test_an_unknown_family_gets_no_guess() -> None:
    assert layer_kinds(text_config({"model_type": "frob", "num_hidden_layers": 2})) == ("unknown", "unknown")
