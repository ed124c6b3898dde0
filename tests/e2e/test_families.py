"""A real vLLM serves the adapter of one step with the trainer's logprobs: two families, the others under `long`.

test_engine_lora.py and test_ring.py show the same of the demo's model, a Qwen3.
Of mixtures of experts, which no vLLM serves with LoRA on a CPU, it serves the base with the adapter merged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.families import results
from benchmarks.families.__main__ import measure
from benchmarks.families.catalog import find_family

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHOSEN = ("Mistral with a window", "Granite hybrid")
MOST_NATS = 1e-4


COMMITTED = {name: one.engine for name, one in results.read_results().items() if one.engine is not None}
OTHERS = [name for name, one in COMMITTED.items() if name not in CHOSEN and one.gap is not None]
MERGED = [name for name, one in COMMITTED.items() if one.merged_gap is not None]


@pytest.mark.parametrize("name", [*CHOSEN, *(pytest.param(one, marks=pytest.mark.long) for one in OTHERS)])
def test_an_engine_answers_with_the_trainer_s_logprobs(name: str, tmp_path: Path) -> None:
    family = find_family(name)
    found = measure(family, tmp_path, with_engine=True).engine
    assert found is not None
    assert found.refusal is None
    assert found.gap is not None
    assert found.base_gap is not None
    assert found.effect is not None
    assert found.effect > 0.05, "the step moved nothing that an engine could leave out"
    if family.dtype == "float32" and not family.quantization:
        assert max(found.gap, found.base_gap) < MOST_NATS
    else:  # the engine computes in bfloat16
        assert max(found.gap, found.base_gap) < found.effect / 5


@pytest.mark.long
@pytest.mark.parametrize("name", MERGED)
def test_an_engine_serves_a_mixture_with_its_adapter_merged(name: str, tmp_path: Path) -> None:
    family = find_family(name)
    found = measure(family, tmp_path, with_engine=True).engine
    assert found is not None
    assert found.refusal is not None
    assert found.merged_gap is not None, found.merged_refusal
    if family.dtype == "float32":
        assert found.merged_gap < MOST_NATS
