"""Several programs of each kind on one store: the parts that need none of them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.several.learner import RANK, weights
from benchmarks.several.moves import served_numbers


def test_an_adapter_has_the_shapes_of_the_model_s_first_layer(tmp_path: Path) -> None:
    config = {"hidden_size": 12, "num_attention_heads": 3, "head_dim": 5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shapes = {name.rpartition("self_attn.")[2]: tensor.shape for name, tensor in weights(tmp_path).items()}
    assert shapes == {"q_proj.lora_A.weight": (RANK, 12), "q_proj.lora_B.weight": (15, RANK)}


def test_the_version_of_an_alias_is_read_from_a_proxys_list() -> None:
    cards = [{"id": "helpdesk", "root": "helpdesk@12"}, {"id": "sales", "root": "base"}, {"id": "other", "root": "x@3"}]
    assert served_numbers({"data": cards}) == {"helpdesk": 12}
