"""The short form of examples/smollm: a published model in a real vLLM, four versions live, the same logprobs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from examples.smollm.train import LEAST_LIVE, MOST_GAP
from tests.e2e.conftest import ROOT

MODEL = "HONE_ENGINE__BASE"  # a model's folder for the test on a GPU
pytestmark = pytest.mark.timeout(1500)


def run_short(out: Path, *flags: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "examples.smollm.train", "--short", "--out", str(out), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1400, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no claim about learning" in done.stdout
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert result["versions_live"] >= LEAST_LIVE
    return result


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="the extra smollm is not installed")
def test_a_published_model_is_trained_and_swapped_in_with_exact_tokens(tmp_path: Path) -> None:
    assert run_short(tmp_path)["logprob_gap_max"] <= MOST_GAP


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.skipif(MODEL not in os.environ, reason=f"{MODEL} names no model's folder")
def test_the_same_instructions_train_a_larger_model_on_a_gpu(tmp_path: Path) -> None:
    run_short(tmp_path, "--config", "gpu.toml")
