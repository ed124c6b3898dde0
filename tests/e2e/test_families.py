"""A real vLLM serves the adapter of one step with the trainer's logprobs: three families, the others under `long`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.families import results
from benchmarks.families.__main__ import measure
from benchmarks.families.catalog import FAMILIES, find_family

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHOSEN = ("Qwen3", "Mistral with a window", "Granite hybrid")
MOST_NATS = 1e-4


def is_served(name: str) -> bool:
    kept = results.read_results().get(name)
    return kept is not None and kept.engine is not None and kept.engine.gap is not None


OTHERS = [family.name for family in FAMILIES if family.name not in CHOSEN and is_served(family.name)]


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
    if not family.quantization:
        assert max(found.gap, found.base_gap) < MOST_NATS
