"""The trainer does with each family what the committed table says, and the page shows the committed figures."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from benchmarks.families import results
from benchmarks.families.catalog import FAMILIES, Family, find_family, write_model
from benchmarks.families.trainer_half import TrainerFigures, run_trainer_half

TEXT_FAMILIES = [family for family in FAMILIES if not family.whole and not family.quantization]
# Fields of real checkpoints that transformers' or vLLM's models read and that no configuration class declares.
READ_BEYOND = {"head_dim", "intermediate_size", "num_nextn_predict_layers", "scoring_func", "topk_method"}
# Rounding of float32 in another order; a row that sees another one, or a LoRA that is left out, is far above.
MOST_NATS, MOST_RELATIVE = 2e-5, 1e-4


@pytest.fixture(scope="session")
def committed() -> dict[str, results.FamilyResult]:
    return results.read_results()


def text_of(figures: TrainerFigures) -> tuple[object, ...]:
    return figures.refusal, figures.rows, figures.reason, figures.modules, figures.unpublished


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.slug)
def test_the_trainer_does_what_the_table_says(
    family: Family, committed: dict[str, results.FamilyResult], tmp_path: Path
) -> None:
    kept, adapters = committed[family.name].trainer, tmp_path / "adapters"
    adapters.mkdir()
    found = run_trainer_half(write_model(family, tmp_path / "model"), adapters)
    assert text_of(found.figures) == text_of(kept)
    assert (found.adapter is not None) == (kept.rows is not None and kept.unpublished is None)
    if kept.rows is not None:
        assert found.figures.frozen_share == pytest.approx(kept.frozen_share)
        for one in (found.figures, kept):
            assert one.logprob_gap is not None
            assert one.gradient_gap is not None
            assert one.logprob_gap < MOST_NATS
            assert one.gradient_gap < MOST_RELATIVE


def test_a_refusal_is_one_sentence_and_none_of_the_libraries_errors(
    committed: dict[str, results.FamilyResult],
) -> None:
    for one in committed.values():
        for text in (one.trainer.refusal, one.trainer.unpublished):
            assert text is None or ("Traceback" not in text and "\n" not in text)
        assert not re.match(r"(after loading: )?\w+(Error|Exception):", one.trainer.refusal or "")


def test_every_family_is_in_the_results_and_the_page_shows_them(committed: dict[str, results.FamilyResult]) -> None:
    assert list(committed) == [family.name for family in FAMILIES]
    page = results.PAGE.read_text("utf-8")
    assert results.MARKS.put(page, results.tables(committed)) == page


def test_an_engine_that_serves_answers_with_the_trainer_s_logprobs(committed: dict[str, results.FamilyResult]) -> None:
    served = {name: one.engine for name, one in committed.items() if one.engine and one.engine.gap is not None}
    assert len(served) >= 15
    for name, one in served.items():
        assert one.gap is not None
        assert one.effect is not None
        # an engine in bfloat16 rounds; one that leaves the adapter out is off by the whole effect
        assert one.gap < one.effect / (100 if find_family(name).dtype == "float32" else 5)


def test_a_mixture_that_is_served_merged_has_the_trainer_s_logprobs(
    committed: dict[str, results.FamilyResult],
) -> None:
    gaps = {name: one.engine.merged_gap for name, one in committed.items() if one.engine and one.engine.merged_gap}
    assert len(gaps) >= 4
    assert {name for name, gap in gaps.items() if gap > 1e-4 and find_family(name).dtype == "float32"} == set()


@pytest.mark.parametrize("family", TEXT_FAMILIES, ids=lambda family: family.slug)
def test_a_model_has_no_field_that_its_family_lacks(family: Family) -> None:
    """An engine may make a module of it that the checkpoint has no weights for, such as a shared expert."""
    config = type(family.make_config())
    known = {one.name for one in dataclasses.fields(config)} | set(config.attribute_map)
    assert set(family.fields) - known <= READ_BEYOND


def test_a_family_is_found_by_name_and_slug() -> None:
    assert find_family("qwen3.5-moe").name == "Qwen3.5-MoE"
    assert find_family("Llama 4 (text)").slug == "llama-4--text"
    with pytest.raises(KeyError):
        find_family("llama 5")
