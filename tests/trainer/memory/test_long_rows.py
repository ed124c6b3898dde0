"""A row longer than a pass: what it holds by its own method, and one verdict of `hone plan` and the trainer."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from benchmarks.gpu_step import _QWEN, BASES
from recorder.models.base_model import ModelProfile, read_base_model
from trainer.errors import UnsupportedModel
from trainer.memory import long_rows, needs, step_memory
from trainer.memory.cards import Card
from trainer.memory.long_rows import PlannedRows
from trainer.memory.needs import CONTEXT_BYTES, GIB, HOST_SHARE, EngineFacts, LongRows
from trainer.memory.planner import make_plan
from trainer.memory.step_memory import StepMemory, measure_row, measure_step
from trainer.policy import memory, positions, row_fit
from trainer.policy.model import Policy
from trainer.settings import TrainerSettings

VALUES = _QWEN | BASES["small"] | {"num_hidden_layers": 4, "vocab_size": 4096}
SETTINGS = TrainerSettings(token_budget=4096)
FACTS, ELSEWHERE = EngineFacts(), EngineFacts(elsewhere=True)


@pytest.fixture(autouse=True)
def each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure each length once for all tests of this file."""
    monkeypatch.setattr(needs, "measure_row", lambda config, settings, tokens: measured_row(settings, tokens))
    monkeypatch.setattr(needs, "measure_step", lambda config, settings, tokens: measured_step(settings, tokens))


def measured_row(settings: TrainerSettings, tokens: int) -> StepMemory:
    return _measured(measure_row, settings.model_dump_json(), tokens)


def measured_step(settings: TrainerSettings, tokens: int) -> StepMemory:
    return _measured(measure_step, settings.model_dump_json(), tokens)


@cache
def _measured(measure: Callable[..., StepMemory], settings: str, tokens: int) -> StepMemory:
    return measure(VALUES, TrainerSettings.model_validate_json(settings), tokens)


@pytest.fixture
def base(tmp_path: Path) -> ModelProfile:
    (tmp_path / "config.json").write_text(json.dumps(VALUES))
    return read_base_model(tmp_path, needs_weights=False)


def test_layers_inputs_are_in_host_memory_and_the_card_holds_less_than_a_pass_of_the_row() -> None:
    tokens = 12_000
    alone, together = measure_row(VALUES, SETTINGS, tokens), measure_step(VALUES, SETTINGS, tokens, one_row=True)
    inputs = tokens * VALUES["hidden_size"] * VALUES["num_hidden_layers"] * 2
    assert alone.host == pytest.approx(inputs, rel=0.01)
    assert together.host == 0
    assert together.held - alone.held > inputs
    assert alone.base == together.base
    kept = measure_row(VALUES, SETTINGS.model_copy(update={"offload_inputs": False}), tokens)
    assert kept.host == 0
    assert kept.held > alone.held


def test_a_length_between_two_measured_ones_is_on_the_line_between_them(base: ModelProfile) -> None:
    rows = LongRows(base, SETTINGS)
    for tokens in (5000, 8192, 10_000):
        found, measured = rows.need(tokens), measured_row(SETTINGS, tokens)
        assert measured.held <= found.held <= 1.02 * measured.held
        assert found.host == pytest.approx(measured.host, rel=0.001)
        assert (found.tokens, found.longest) == (4096, tokens)


def test_a_base_whose_layers_have_no_mlp_to_divide_has_no_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Policy, "has_divisible_mlps", property(lambda self: False))
    step_memory._measure_once.cache_clear()
    with pytest.raises(UnsupportedModel, match="cannot be divided"):
        measure_row(VALUES, SETTINGS, 5000)


class GpuPolicy:
    """What the trainer's policy says of itself on a GPU, for a machine without one."""

    has_long_rows = True
    device = torch.device("cuda")
    checked_tokens = pass_budget = 4096
    model_config = None


def on_a_gpu(base: ModelProfile, monkeypatch: pytest.MonkeyPatch, *, device: float, host: float) -> PlannedRows:
    """The trainer's verdict where so many bytes of a card, beside the context, and of the host are free."""
    monkeypatch.setattr(positions, "critical_lengths", lambda config: [])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: GIB)
    monkeypatch.setattr(memory, "free_bytes", lambda _: round(device) - GIB)
    monkeypatch.setattr(memory, "host_free_bytes", lambda: round(host))
    return PlannedRows(GpuPolicy(), base.folder, SETTINGS)  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [8192, 11_000])  # which hold more than a pass of the budget
@pytest.mark.parametrize(("card", "host"), [(0, 0), (-1, 0), (0, -1), (-1, -1)])
def test_the_plan_and_the_trainer_say_the_same_of_a_row(
    tokens: int, card: int, host: int, base: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = LongRows(base, SETTINGS).need(tokens)
    device_bytes, host_bytes = need.reserved + card, need.host / HOST_SHARE + 2 * host
    gib = (device_bytes + CONTEXT_BYTES) / GIB
    planned = make_plan(
        base, Card("a card", gib), SETTINGS, ELSEWHERE, row_tokens=tokens, host_bytes=host_bytes, search=False
    )
    trainer = on_a_gpu(base, monkeypatch, device=device_bytes, host=host_bytes)
    assert planned.chosen.trainer == need
    assert planned.fits is trainer(tokens) is (card == host == 0)
    assert trainer.reason is None


def test_a_row_that_the_start_up_check_does_not_cover_is_not_computed(
    base: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = on_a_gpu(base, monkeypatch, device=1000 * GIB, host=1000 * GIB)
    assert trainer(30_000)  # beyond four times the budget, where the estimate ends
    monkeypatch.setattr(positions, "critical_lengths", lambda config: [8192])
    assert trainer(8192)
    assert not trainer(8193)


def test_what_cannot_be_planned_is_estimated_and_the_log_says_why(
    base: ModelProfile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def estimate(_: object, tokens: int) -> bool:
        asked.append(tokens)
        return True

    monkeypatch.setattr(row_fit, "fits_alone", estimate)
    trainer = on_a_gpu(base, monkeypatch, device=GIB, host=GIB)
    monkeypatch.setattr(needs, "measure_row", unsupported)
    with caplog.at_level(logging.INFO, logger=long_rows.__name__):
        assert trainer(5000)
        assert trainer(6000)
    assert asked == [5000, 6000]
    assert [one.getMessage() for one in caplog.records] == [
        "whether rows above trainer.token_budget fit is estimated: its layers are odd."
    ]


def unsupported(*_: object) -> None:
    raise UnsupportedModel("its layers are odd.")


def test_on_a_cpu_the_estimate_decides(base: ModelProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuPolicy, "device", torch.device("cpu"))
    assert on_a_gpu(base, monkeypatch, device=GIB, host=GIB).reason is not None


def test_a_row_that_must_be_trained_is_planned_alone_and_printed(base: ModelProfile) -> None:
    short = make_plan(base, Card("a card", 100.0), SETTINGS, FACTS)
    long = make_plan(base, Card("a card", 100.0), SETTINGS, FACTS, row_tokens=11_000)
    assert (long.tokens, long.longest_row) == (4096, 11_000)
    assert long.chosen.trainer.held >= short.chosen.trainer.held
    assert long.setting_values(long.chosen)["trainer.token_budget"] == 4096
    assert "passes of 4,096 tokens and a row of 11,000" in long.sentence
    assert long.as_json()["trainer"]["offloaded"] == long.chosen.trainer.host > 0
    assert long.chosen.engine.row_cache * 4096 == short.chosen.engine.row_cache * 11_000
