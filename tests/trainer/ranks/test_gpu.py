"""Two processes on two GPUs are one process on one, with a whole base on each and with a share. Needs two GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks.groups import ONE_RANK, assert_equal, opened, two_steps
from tests.trainer.training_child import SETTINGS
from trainer.ranks.group import Ranks
from trainer.ranks.launch import Launcher

pytestmark = [
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs, or no CUDA build of torch"),
    pytest.mark.slow,
    pytest.mark.gpu,
]
ON_GPU: dict[str, Any] = {"device": "cuda", "dtype": "float32", "kl_coef": 0.1, "logprob_chunk": 3}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    launcher = Launcher(SETTINGS.model_copy(update={"processes": 2, "device": "cuda", "rank_timeout_s": 120.0}))
    try:
        yield launcher.join()
    finally:
        launcher.leave()


@pytest.mark.parametrize("shard_base", [False, True], ids=["whole", "shared"])
def test_two_steps_are_one_processs(ranks: Ranks, tiny_base: Path, tmp_path: Path, shard_base: bool) -> None:
    with opened(tiny_base, tmp_path / "one", ONE_RANK, **ON_GPU) as core:
        expected = two_steps(core)
    with opened(tiny_base, tmp_path / "two", ranks, shard_base=shard_base, **ON_GPU) as core:
        assert_equal(two_steps(core), expected, 1e-5)
