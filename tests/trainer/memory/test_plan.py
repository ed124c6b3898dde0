"""Plans of engine and trainer on cards: what fits, the settings, the nearest set-up, and the trainer's own check."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_step import _QWEN, BASES, RESULTS, SETTINGS
from proxy.settings.hone import HoneSettings
from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.shipped_configs import SHIPPED
from trainer.errors import DoesNotFit, PlanInvalid, UnsupportedModel
from trainer.memory import needs, start
from trainer.memory import plan as plans
from trainer.memory.cards import CARDS, Card, find_card
from trainer.memory.needs import CONTEXT_BYTES, ENGINE_EXTRA_BYTES, GIB, RESERVED, EngineFacts
from trainer.memory.placement import VLLM_SHARE
from trainer.memory.plan import UTILISATION, Plan
from trainer.memory.planner import make_plan
from trainer.memory.step_memory import StepMemory, measure_step
from trainer.settings import TrainerSettings

FACTS = EngineFacts()


@pytest.fixture
def tiny(tmp_path: Path) -> ModelProfile:
    """A base of 20 million parameters, known by its config.json alone."""
    values = _QWEN | BASES["small"] | {"num_hidden_layers": 6, "vocab_size": 65_536}
    (tmp_path / "config.json").write_text(json.dumps(values))
    return read_base_model(tmp_path, needs_weights=False)


def planned(
    profile: ModelProfile, gib: float, *, cards: int = 1, tokens: int = 16_384, facts: EngineFacts = FACTS,
    host_bytes: int | None = None, **others: object,
) -> Plan:  # fmt: skip
    settings = TrainerSettings.model_validate({"token_budget": tokens, **others})
    return make_plan(profile, Card(f"{gib:g} GiB", gib), settings, facts, cards=cards, host_bytes=host_bytes)


def needed(profile: ModelProfile, tokens: int) -> tuple[float, float]:
    """What trainer and engine need at least, in GiB."""
    made = planned(profile, 1000, tokens=tokens).chosen
    return made.trainer.total / GIB, made.engine.least / GIB


def test_a_base_that_fits_no_card_is_shared_among_several(tmp_path: Path) -> None:
    """The engine runs elsewhere, so all cards are the trainer's."""
    values = _QWEN | BASES["small"] | {"num_hidden_layers": 300, "vocab_size": 1024}
    (tmp_path / "config.json").write_text(json.dumps(values))
    deep, settings = read_base_model(tmp_path, needs_weights=False), TrainerSettings(token_budget=2048)
    facts = EngineFacts(elsewhere=True)
    whole = make_plan(deep, Card("large", 1000), settings, facts)
    card = Card("small", (whole.chosen.trainer.total - whole.base.high.base / 3) / GIB)
    made = make_plan(deep, card, settings, facts, cards=3)
    assert made.fits
    saved = whole.chosen.trainer.held - made.chosen.trainer.held
    assert 0.6 * whole.base.high.base < saved < whole.base.high.base * 2 / 3
    found = made.setting_values(made.chosen)
    assert (found["trainer.processes"], found["trainer.shard_base"]) == (3, True)
    assert "fits on 3 small" in made.sentence
    assert "on each of its cards" in made.sentence
    assert not make_plan(deep, card, settings, facts, search=False).fits


def test_processes_have_a_card_each_beside_the_engines(tiny: ModelProfile) -> None:
    made = planned(tiny, 40, cards=4, processes=3)
    assert made.fits
    assert "fits on 4 cards of 40 GiB" in made.sentence
    values = made.setting_values(made.chosen)
    assert (values["engine.gpus"], values["trainer.gpus"], values["trainer.processes"]) == ([3], [0, 1, 2], 3)
    assert values["trainer.shard_base"] is False
    written = "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    HoneSettings.model_validate(tomllib.loads(written))
    too_many = planned(tiny, 40, cards=3, processes=3)  # the engine needs one, too
    assert (too_many.fits, too_many.nearest[0]) == (False, "trainer.processes = 2")
    assert planned(tiny, 40, cards=3, processes=3, facts=EngineFacts(elsewhere=True)).fits


def test_a_copy_in_four_bits_and_an_engine_that_pauses_have_no_shares(tiny: ModelProfile) -> None:
    small = needed(tiny, 2048)[0] / 3
    cases = [(EngineFacts(elsewhere=True), "nf4"), (EngineFacts(share="sleep"), None)]
    for facts, quantize in cases:
        made = planned(tiny, small, cards=8, tokens=2048, facts=facts, quantize=quantize)
        assert made.settings.processes == 1
        assert not made.settings.shard_base


def test_the_settings_of_one_card_leave_the_trainer_what_it_needs(tiny: ModelProfile) -> None:
    made = planned(tiny, 12)
    assert made.fits
    assert made.chosen.is_shared
    values = made.setting_values(made.chosen)
    share = values["engine.gpu_memory_utilization"]
    need = made.chosen.trainer
    assert need.reserved == pytest.approx(need.held * RESERVED, abs=1)
    assert need.total == need.reserved + CONTEXT_BYTES
    assert 12 * GIB * (1 - share) >= need.total
    assert values["engine.kv_cache_bytes"] + made.chosen.engine.fixed <= 12 * GIB * share
    assert values["trainer.token_budget"] == 16_384
    assert values["trainer.gradient_checkpointing"] == "auto"
    assert values["trainer.offload_inputs"] == "auto"


def test_what_fits_only_with_shorter_rows_is_refused_with_the_budget_that_does(tiny: ModelProfile) -> None:
    gib = round(sum(needed(tiny, 32_768)) * 1.02, 2)
    large = planned(tiny, gib, tokens=65_536)
    assert not large.fits
    word = next(one for one in large.nearest if "trainer.token_budget" in one)
    budget = int(word.split()[2])
    assert 32_768 <= budget < 65_536
    assert planned(tiny, gib, tokens=budget).fits
    assert not planned(tiny, gib, tokens=budget + 4096).fits
    assert word in large.sentence
    assert large.as_json()["settings"] == {}


def test_kept_activations_are_the_first_thing_to_change(tiny: ModelProfile) -> None:
    gib = sum(needed(tiny, 16_384)) * 1.05
    assert planned(tiny, gib, gradient_checkpointing=False).nearest[0] == "trainer.gradient_checkpointing = true"


def test_two_cards_hold_what_one_does_not(tiny: ModelProfile) -> None:
    gib = round(max(needed(tiny, 32_768)) * 1.1, 2)
    one = planned(tiny, gib, tokens=32_768)
    two = planned(tiny, gib, cards=2, tokens=32_768)
    assert (one.fits, two.fits) == (False, True)
    assert any(f"two cards of {gib:g} GiB" in word for word in one.nearest)
    values = two.setting_values(two.chosen)
    assert (values["engine.gpus"], values["trainer.gpus"]) == ([1], [0])
    assert values["engine.gpu_memory_utilization"] == VLLM_SHARE
    assert values["engine.kv_cache_bytes"] + two.chosen.engine.fixed <= VLLM_SHARE * gib * GIB


@pytest.mark.parametrize(("gib", "cards", "tokens"), [(8.0, 1, 4096), (12.0, 1, 16_384), (8.0, 2, 16_384)])
def test_the_printed_settings_are_a_hone_toml_with_which_it_fits_again(
    gib: float, cards: int, tokens: int, tiny: ModelProfile
) -> None:
    made = planned(tiny, gib, cards=cards, tokens=tokens)
    assert made.fits
    for one in filter(None, (made.shared, made.apart)):
        if not one.fits:
            continue
        values = made.setting_values(one)
        written = "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
        settings = HoneSettings.model_validate(tomllib.loads(written))
        assert settings.engine.kv_cache_bytes == values["engine.kv_cache_bytes"]
        facts = EngineFacts(max_model_len=settings.engine.max_model_len)
        again = make_plan(tiny, Card(f"{gib:g} GiB", gib), settings.trainer, facts, cards=cards)
        assert again.fits
        same = again.apart if one is made.apart else again.shared
        assert same is not None
        values.pop("engine.max_model_len", None)  # with it, the whole context fits into the cache
        assert again.setting_values(same) == values


def test_an_engine_elsewhere_takes_nothing_of_the_card(tiny: ModelProfile) -> None:
    gib = needed(tiny, 32_768)[0] * 1.05
    made = make_plan(tiny, Card(f"{gib:g} GiB", gib), TrainerSettings(token_budget=32_768), EngineFacts(elsewhere=True))
    assert made.fits
    assert not any(name.startswith("engine.") for name in made.setting_values(made.chosen))
    assert "and the engine" not in made.sentence


def test_a_cache_that_holds_no_whole_context_shortens_it(tiny: ModelProfile) -> None:
    long = replace(tiny, context_length=10_000_000, default_context_length=10_000_000)
    made = planned(long, 24)
    length = made.setting_values(made.chosen)["engine.max_model_len"]
    assert length % 1024 == 0
    size = long.kv_cache_bytes(length, element_bytes=2)
    assert size is not None
    assert size <= made.chosen.cache


def test_a_row_beyond_the_models_context_is_refused(tiny: ModelProfile) -> None:
    with pytest.raises(PlanInvalid, match=r"70000 tokens is longer than the context of .* \(65536\)"):
        make_plan(tiny, find_card("24"), TrainerSettings(), FACTS, row_tokens=70_000)


def test_a_budget_beyond_the_models_context_is_planned_as_the_context(tiny: ModelProfile) -> None:
    assert planned(replace(tiny, context_length=2048), 24).tokens == 2048


def test_an_unknown_family_gets_no_guess(tiny: ModelProfile) -> None:
    unknown = replace(tiny, layers=("unknown",) * 6, family="nobodys")
    with pytest.raises(PlanInvalid, match="'nobodys', which Hone does not know"):
        planned(unknown, 24)


def test_quantised_weights_cannot_be_trained(tiny: ModelProfile) -> None:
    with pytest.raises(UnsupportedModel, match="quantised \\(awq\\)"):
        planned(replace(tiny, quantization="awq"), 24)


def test_an_8b_on_24_gib_is_refused_with_a_smaller_one_and_a_larger_card(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def count(config: Mapping[str, Any], settings: TrainerSettings, tokens: int) -> StepMemory:
        measured.append((config["hidden_size"], tokens))
        return measure_step(config, settings, tokens)

    monkeypatch.setattr(needs, "measure_step", count)
    profile = read_base_model(SHIPPED / "Qwen3-8B", name="Qwen3-8B", needs_weights=False)
    made = make_plan(profile, find_card("24"), TrainerSettings(), FACTS)
    assert measured == [(4096, 16_384), (2048, 16_384)]  # weights alone are too large: no shorter pass is measured
    assert not made.fits
    assert made.sentence.startswith("Qwen3-8B does not fit on one card of 24 GiB: the trainer needs 38.")
    assert any(word.startswith("Qwen3-") for word in made.nearest)
    assert any("H100" in word for word in made.nearest)
    with pytest.raises(DoesNotFit) as refused:
        start.require_room(SHIPPED / "Qwen3-8B", TrainerSettings(), find_card("24"))
    assert "does not fit on one card of 24 GiB: the trainer needs 38." in str(refused.value)


def test_the_engine_has_slots_for_the_lora_of_experts_whatever_is_trained(tmp_path: Path) -> None:
    values = _QWEN | BASES["small"] | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
    (tmp_path / "config.json").write_text(json.dumps(values | {"moe_intermediate_size": 128}))
    profile = read_base_model(tmp_path, needs_weights=False)
    made = {
        target: make_plan(profile, find_card("24"), TrainerSettings.model_validate({"target": target}), FACTS)
        for target in ("all-linear", "attention", "experts")
    }
    assert "trainer.target" not in made["all-linear"].setting_values(made["all-linear"].chosen)
    everything, attention, experts = (one.chosen.engine.loras for one in made.values())
    assert everything == attention
    # gate, up and down of 8 experts a layer: a pair of matrices each, in bfloat16
    layers, hidden = profile.text["num_hidden_layers"], profile.text["hidden_size"]
    slots = FACTS.max_loras * FACTS.max_lora_rank
    assert experts == layers * 8 * 3 * (128 + hidden) * 2 * slots
    trained = [one.base.high.lora for one in made.values()]
    assert trained[0] == trained[1] + trained[2]


def test_the_trainer_starts_where_a_pass_fits_and_checks_nothing_on_a_cpu(tiny: ModelProfile) -> None:
    start.require_room(tiny.folder, TrainerSettings(), find_card("24"))
    start.require_room(SHIPPED / "Qwen3-32B", TrainerSettings(device="cpu"))
    with pytest.raises(DoesNotFit):
        start.require_room(tiny.folder, TrainerSettings(), Card("1 GiB", 1.0))


def test_the_utilisation_is_that_of_the_committed_runs() -> None:
    committed, h100 = json.loads(RESULTS.read_text("utf-8")), find_card("H100")
    assert h100.peak_flops is not None
    shares = []
    for name in ("Qwen3-0.6B", "Qwen2.5-1.5B"):
        runs = committed[name]
        tokens = runs["step"]["forward_tokens"]
        flops = measure_step(_QWEN | BASES[name], SETTINGS, plans.SPEED_ROW).flops / plans.SPEED_ROW * tokens
        shares += [flops / (run["s"] * h100.peak_flops) for run in runs["budgets"]]
        long = runs["long"][1]
        flops = measure_step(_QWEN | BASES[name], SETTINGS, long["tokens"], one_row=True).flops
        shares.append(flops / (long["s"] * h100.peak_flops))
    assert (round(min(shares), 2), round(max(shares), 2)) == UTILISATION


def test_seconds_are_a_range_and_only_of_a_card_that_is_known(tiny: ModelProfile) -> None:
    assert planned(tiny, 24).seconds is None
    found = make_plan(tiny, find_card("H100"), TrainerSettings(), FACTS).seconds
    slow = make_plan(tiny, find_card("L4"), TrainerSettings(), FACTS).seconds
    assert found is not None
    assert slow is not None
    assert 0 < found[0] < found[1]
    assert slow[0] / found[0] == pytest.approx(989 / 121)


@pytest.mark.parametrize(
    ("named", "name"),
    [("h100", "H100"), ("NVIDIA H100 80GB HBM3", "H100"), ("4090", "RTX 4090"), ("rtx-4090", "RTX 4090"),
     ("GeForce RTX 3090", "RTX 3090"), ("a100-40gb", "A100 40GB"), ("A100-80GB", "A100"), ("a100", "A100"),
     ("L40S", "L40S"), ("l4", "L4"), ("A10G", "A10G"), ("RTX 6000 Ada", "RTX 6000 Ada"), ("b200", "B200")],
)  # fmt: skip
def test_a_card_is_found_by_the_names_people_write(named: str, name: str) -> None:
    assert find_card(named).name == name


@pytest.mark.parametrize(("named", "gib"), [("24", 24.0), ("79.6", 79.6), ("24GB", 24.0), ("48 GiB", 48.0)])
def test_a_number_is_a_cards_memory(named: str, gib: float) -> None:
    assert find_card(named).gib == gib


@pytest.mark.parametrize("named", ["H300", "0", "", "-24", "toaster", "nan"])
def test_a_card_that_does_not_exist_is_refused(named: str) -> None:
    with pytest.raises(PlanInvalid, match="--gpu"):
        find_card(named)


def test_cards_have_a_peak_and_names_of_their_own() -> None:
    assert all(card.peak_flops for card in CARDS)
    assert len({card.name for card in CARDS}) == len(CARDS)
    assert [find_card(card.name) for card in CARDS] == list(CARDS)


def test_a_card_used_in_turns_holds_what_a_split_one_does_not(tiny: ModelProfile) -> None:
    trainer, _ = needed(tiny, 32_768)
    gib = round(trainer + ENGINE_EXTRA_BYTES / GIB + 0.02, 2)  # no room for its weights and its cache
    settings, card = TrainerSettings(token_budget=32_768), Card(f"{gib:g} GiB", gib)
    split = make_plan(tiny, card, settings, EngineFacts())
    assert not split.fits
    assert any(one.startswith("engine.share = ") for one in split.nearest)
    asleep = make_plan(tiny, card, settings, EngineFacts(share="sleep"))
    assert asleep.fits
    values = asleep.setting_values(asleep.chosen)
    assert values["engine.share"] == "sleep"
    assert "engine.kv_cache_bytes" not in values
    assert values["engine.gpu_memory_utilization"] == VLLM_SHARE


def test_sleep_is_refused_where_the_machine_cannot_hold_both_copies(tiny: ModelProfile) -> None:
    facts = EngineFacts(share="sleep")
    enough = planned(tiny, 40, facts=facts).host_bytes
    weights = planned(tiny, 40).base.high.base
    assert enough >= 2 * weights  # the engine's and the trainer's
    assert planned(tiny, 40, facts=facts, host_bytes=enough).fits
    refused = planned(tiny, 40, facts=facts, host_bytes=enough - 1)
    assert not refused.fits
    assert "of the machine's memory, which has" in refused.sentence
    less = planned(tiny, 40, facts=EngineFacts(share="cache"), host_bytes=enough - 1)
    assert less.fits  # its weights stay on the card
