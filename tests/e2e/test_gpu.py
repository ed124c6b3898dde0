"""A real vLLM on a GPU serves the adapter of one step of each family, mixtures with LoRA on their experts. Needs a GPU.

It computes in bfloat16 and the trainer in float32, so a gap is compared with what the step changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from benchmarks.families import trainer_half
from benchmarks.families.catalog import FAMILIES, find_family, write_model
from benchmarks.families.engine_half import EngineWay, serve_adapter
from benchmarks.families.results import read_results

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU, or no CUDA build of torch"),
    pytest.mark.gpu,
    pytest.mark.timeout(900),
]

NEWEST = os.environ.get("HONE_NEWEST_VLLM")  # a Python with the newest vLLM: `python -m scripts.gpu` makes it
PYTHONS = {"own": None, **({"newest": Path(NEWEST)} if NEWEST else {})}
PUBLISHED = [
    family.name
    for family in FAMILIES
    if (kept := read_results().get(family.name)) is not None and kept.trainer.rows and not kept.trainer.unpublished
]


@pytest.mark.parametrize("vllm", PYTHONS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_an_engine_on_a_gpu_serves_the_adapter_of_a_step(name: str, vllm: str, tmp_path: Path) -> None:
    family, adapters = find_family(name), tmp_path / "adapters"
    adapters.mkdir()
    base = write_model(family, tmp_path / "model")
    trained = trainer_half.run_trainer_half(base, adapters)
    assert trained.adapter is not None, trained.figures
    assert trained.probe is not None
    arguments = ("--language-model-only",) if family.whole else ()
    way = EngineWay("bfloat16", arguments, device="cuda", python=PYTHONS[vllm])
    found = serve_adapter(base, trained.adapter, trained.probe, tmp_path / "engine.log", way)
    assert found.refusal is None
    assert found.gap is not None
    assert found.effect is not None
    assert found.gap < found.effect / 5
