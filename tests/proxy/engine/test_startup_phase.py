"""What a starting engine does is read from vLLM's log."""

from __future__ import annotations

import pytest

from proxy.engine.startup_phase import FIRST, startup_phase

LOG = """\
(APIServer pid=1) INFO 11-26 20:10:19 [api_utils.py:286] non-default args: {'host': '127.0.0.1'}
(APIServer pid=1) INFO 11-26 20:10:19 [model.py:733] Resolved architecture: Qwen3ForCausalLM
(EngineCore pid=2) INFO 11-26 20:10:39 [cpu_model_runner.py:68] Starting to load model /model...
\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  5.40it/s]
(EngineCore pid=2) INFO 11-26 20:10:40 [default_loader.py:501] Loading weights took 0.02 seconds
(EngineCore pid=2) INFO 11-26 20:10:42 [kv_cache_utils.py:2327] CPU KV cache size: 43,648 tokens
(EngineCore pid=2) INFO 11-26 20:10:42 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.08 s
(APIServer pid=1) INFO 11-26 20:10:43 [entry.py:140] Starting vLLM server on http://127.0.0.1:40913
"""


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        (0, "importing vLLM"),
        (1, "importing vLLM"),
        (2, "reading the model's configuration"),
        (3, "loading the weights"),
        (4, "loading the weights (50%)"),
        (5, "the weights are loaded"),
        (6, "allocating the KV cache"),
        (7, "the model is ready"),
        (8, "opening its port"),
    ],
)
def test_the_last_line_that_tells_something_counts(lines: int, phase: str) -> None:
    log = "\n".join(LOG.split("\n")[:lines])
    assert startup_phase(log) == phase
    assert startup_phase(log + "\nWARNING: something of no interest") == phase


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Fetching 8 files:  25%|██▌       | 2/8 [00:04<00:12]", "downloading the model (25%)"),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  60%|██", "capturing CUDA graphs (60%)"),
        ("INFO [backends.py:1] Compiling a graph for dynamic shape takes 5 s", "compiling the model"),
        ("INFO [backends.py:9] torch.compile takes 12.3 s in total", "compiling the model"),
        (
            "WARNING [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.",
            FIRST,
        ),
    ],
)
def test_engines_on_gpus_and_downloads_are_told(line: str, phase: str) -> None:
    assert startup_phase(line) == phase
