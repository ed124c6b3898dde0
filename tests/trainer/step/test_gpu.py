"""Whole steps on a GPU: gone on from, moved to a CPU, and without room. Needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from tests.trainer.step.test_core import assert_same, weights
from tests.trainer.training_child import BASE, core, one_step, start
from trainer.errors import MemoryFull
from trainer.step.core import TrainerCore

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU, or no CUDA build of torch"),
    pytest.mark.slow,
    pytest.mark.gpu,
]


def on_gpu(base: Path, data: Path, dtype: str = "float32") -> TrainerCore:
    return core(base, data, device="cuda", dtype=dtype)


@contextmanager
def no_room() -> Iterator[None]:
    """Within: the GPU gives no more memory, and what torch has of it is taken."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-6)
    taken = []
    try:
        with suppress(torch.OutOfMemoryError):
            for _ in range(100_000):
                taken.append(torch.empty(1, device="cuda"))
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_after_a_restart_is_the_step_without_one(tiny_base: Path, tmp_path: Path, dtype: str) -> None:
    straight = on_gpu(tiny_base, tmp_path, dtype)
    straight.go_to(BASE)
    _, first = one_step(straight, 1)
    _, expected = one_step(straight, 2)
    resumed = on_gpu(tiny_base, tmp_path, dtype)
    assert resumed.go_to(start(first, 1))
    _, found = one_step(resumed, 2)
    assert_same(found, expected)


def test_a_version_of_the_gpu_is_gone_on_from_on_the_cpu(tiny_base: Path, tmp_path: Path) -> None:
    gpu, cpu = on_gpu(tiny_base, tmp_path), core(tiny_base, tmp_path)
    gpu.go_to(BASE)
    _, first = one_step(gpu, 1)
    _, expected = one_step(gpu, 2)
    assert cpu.go_to(start(first, 1))
    _, found = one_step(cpu, 2)
    for name, tensor in weights(expected).items():
        torch.testing.assert_close(weights(found)[name], tensor, atol=2e-3, rtol=0)  # Adam's step is 1e-2


def test_without_room_a_step_is_given_up_and_the_next_one_is_made(tiny_base: Path, tmp_path: Path) -> None:
    trainer = on_gpu(tiny_base, tmp_path)
    trainer.go_to(BASE)
    _, expected = one_step(trainer, 1)
    trainer.go_to(BASE)
    with no_room(), pytest.raises(MemoryFull, match=r"trainer\.token_budget"):
        one_step(trainer, 1)
    trainer.go_to(BASE)
    _, found = one_step(trainer, 1)
    assert_same(found, expected)
