"""What `trainer.target` touches in each family: exactly these modules, and no router that nobody named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.models.experts import explain_shares
from tests.trainer.families import DENSE, MIXTURES, make_model, save_family
from trainer.errors import TrainerError
from trainer.lora.targets import choose_targets, is_router, measure_shares
from trainer.policy.base_model import add_lora, load_policy
from trainer.settings import TrainerSettings

QKVO = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP = {"gate_proj", "up_proj", "down_proj"}
GDN = {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"}
MLA = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"}
# attention, other linear layers (shared experts, dense layers), layers with experts
EXPECTED: dict[str, tuple[set[str], set[str], list[int]]] = {
    "qwen3-moe": (QKVO, set(), [0, 1]),
    "qwen3.5-moe": (QKVO | GDN, MLP, [0, 1]),
    "mixtral": (QKVO, set(), [0, 1]),
    "gpt-oss": (QKVO, set(), [0, 1]),
    "deepseek-v3": (MLA, MLP, [1]),
    "glm4-moe": (QKVO, MLP, [1]),
    "llama4": (QKVO, MLP, [0, 1]),
    "granite-moe": (QKVO, set(), [0, 1]),
    "qwen3": (QKVO, MLP, []),
    "llama3": (QKVO, MLP, []),
    "phi3": ({"qkv_proj", "o_proj"}, {"gate_up_proj", "down_proj"}, []),
    "gemma3": (QKVO, MLP, []),
    "falcon-h1": (QKVO | {"in_proj"}, MLP, []),
}
SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=256)


def last_parts(names: tuple[str, ...]) -> set[str]:
    return {name.rsplit(".", 1)[-1] for name in names}


@pytest.mark.parametrize("family", EXPECTED)
def test_each_word_selects_exactly_these_modules(family: str) -> None:
    attention, others, layers = EXPECTED[family]
    model = make_model(family)
    architecture = type(model).__name__
    everything = choose_targets(model, "all-linear", architecture, family)
    assert last_parts(everything.modules) == attention | others
    assert [int(name.split(".")[2]) for name in everything.experts] == layers
    assert everything.routers == ()
    assert not any(is_router(name) for name in everything.modules)
    alone = choose_targets(model, "attention", architecture, family)
    assert (last_parts(alone.modules), alone.experts) == (attention, ())
    assert set(alone.modules) <= set(everything.modules)
    if layers:
        only = choose_targets(model, "experts", architecture, family)
        assert (only.modules, only.experts) == ((), everything.experts)
    else:
        with pytest.raises(TrainerError, match="has no fused experts"):
            choose_targets(model, "experts", architecture, family)


@pytest.mark.parametrize("family", [*MIXTURES, *DENSE])
def test_peft_puts_a_lora_of_one_rank_on_what_was_chosen_and_on_nothing_else(family: str) -> None:
    model = make_model(family)
    architecture = type(model).__name__
    targets = choose_targets(model, "all-linear", architecture, family)
    adapted = add_lora(model, Path(family), SETTINGS, architecture)
    trained = {
        name.split(".lora_")[0].removeprefix("base_model.model.")
        for name, parameter in adapted.named_parameters()
        if parameter.requires_grad
    }
    assert trained == {*targets.modules, *targets.experts, *(f"{name}.base_layer" for name in targets.experts)}
    config = adapted.peft_config["default"]
    assert (config.rank_pattern, config.alpha_pattern) == ({}, {})
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad:
            rank = parameter.shape[0 if ".lora_A." in name else 1]
            assert rank == (16 if ".experts." in name else 4), name


def test_a_router_gets_a_lora_only_where_a_list_names_it() -> None:
    for family, named in (("qwen3-moe", "gate"), ("llama4", "router"), ("qwen3.5-moe", "shared_expert_gate")):
        model = make_model(family)
        settings = SETTINGS.model_copy(update={"target": ["q_proj", named]})
        adapted = add_lora(model, Path(family), settings, type(model).__name__)
        names = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
        assert any(f".{named}.lora_A." in name for name in names)
        assert all(f".{named}.lora_" in name or ".q_proj.lora_" in name for name in names)


def test_a_list_takes_experts_as_one_and_refuses_what_it_cannot_select(tmp_path: Path) -> None:
    model = make_model("glm4-moe")
    found = choose_targets(model, ["o_proj", "experts"], "Glm4MoeForCausalLM", "glm")
    assert (last_parts(found.modules), found.experts) == ({"o_proj"}, ("model.layers.1.mlp.experts",))
    mixture = make_model("qwen3-moe")
    for target in (["q_proj", "gate_proj"], ["gate_up_proj"], []):
        with pytest.raises(TrainerError, match=r"selects no module .*Its experts are 'experts' \(gate, up and down"):
            choose_targets(mixture, target, "Qwen3MoeForCausalLM", "qwen")
    with pytest.raises(TrainerError, match="kv_b_proj out while it decodes"):
        choose_targets(make_model("deepseek-v3"), ["kv_b_proj"], "DeepseekV3ForCausalLM", "deep")


def test_weights_that_mamba_s_kernel_reads_itself_get_no_lora() -> None:
    for family in ("falcon-h1", "nemotron-h"):
        model = make_model(family)
        named = {name for name, _ in model.named_modules() if name.endswith(".out_proj")}
        assert named
        assert named.isdisjoint(choose_targets(model, "all-linear", type(model).__name__, family).modules)
        with pytest.raises(TrainerError, match=r"PEFT puts no LoRA on out_proj of .*Remove it from the list\."):
            choose_targets(model, ["in_proj", "out_proj"], type(model).__name__, family)


def test_attention_that_goes_by_another_name_is_refused_with_what_to_set() -> None:
    with pytest.raises(
        TrainerError, match=r'"attention" selects nothing: .* nemotron-h .*"all-linear".*k_proj, o_proj, q_proj'
    ):
        choose_targets(make_model("nemotron-h"), "attention", "NemotronHForCausalLM", "nemotron-h")


def test_experts_whose_names_the_engine_s_class_does_not_say_stay_frozen_or_are_refused() -> None:
    model = make_model("qwen3-moe")
    found = choose_targets(model, "all-linear", "AnotherForCausalLM", "other")
    assert (last_parts(found.modules), found.experts) == (QKVO, ())
    shares = measure_shares(model, found)
    experts = sum(parameter.numel() for name, parameter in model.named_parameters() if ".experts." in name)
    assert (shares.frozen_experts, shares.frozen_routers) == (experts, 2 * 4 * 32)
    for target in ("experts", ["q_proj", "experts"]):
        with pytest.raises(
            TrainerError, match=r"no LoRA on experts of AnotherForCausalLM .*leaves these experts frozen"
        ):
            choose_targets(model, target, "AnotherForCausalLM", "other")


def test_the_shares_are_told_in_one_sentence() -> None:
    model = make_model("qwen3-moe")
    targets = choose_targets(model, "attention", "Qwen3MoeForCausalLM", "qwen")
    sentence = explain_shares(measure_shares(model, targets), "attention")
    assert sentence == (
        "trainer.target attention puts a LoRA on 21% of the base's weights; 79% stay frozen (experts 63%, routers less "
        "than 1%, others, such as embeddings, 15%)."
    )
    dense = make_model("qwen3")
    whole = measure_shares(dense, choose_targets(dense, "all-linear", "Qwen3ForCausalLM", "qwen"))
    assert explain_shares(whole, "all-linear").endswith("22% stay frozen.")


def test_a_word_that_is_no_target_is_refused_by_the_settings() -> None:
    given: Any = "everything"
    with pytest.raises(ValueError, match="all-linear"):
        TrainerSettings(target=given)


def test_a_policy_with_the_attention_alone_leaves_experts_as_they_are(tmp_path: Path) -> None:
    base = save_family("qwen3-moe", tmp_path)
    policy = load_policy(base, SETTINGS.model_copy(update={"target": "attention"}))
    assert policy.modules == ("k_proj", "o_proj", "q_proj", "v_proj")
