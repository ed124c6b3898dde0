"""A mixture of experts, trained and merged, served by a real vLLM on the CPU without LoRA: the trainer's logprobs.

vLLM serves no mixture with LoRA on a CPU. What it reads of an adapter's files is compared in
tests/trainer/lora/test_file_layout.py; here it computes what they mean.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from examples.running.programs import free_ports
from tests.e2e.conftest import MODEL
from trainer.artifacts import adapters, merge
from trainer.artifacts.adapters import AdapterOrigin, LoraShape
from trainer.batch.packing import pack
from trainer.lora.file_layout import ExpertLayout
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

START_S = 1200.0
RANK = 4
SETTINGS = TrainerSettings(device="cpu", rank=RANK, alpha=8.0, token_budget=256)
PROMPTS = [list(range(20, 60)), [5, 6, 7, 8, 9, 10], [40, 41, 42] * 10]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A mixture with the demo's tokenizer, and a LoRA on all linear layers and experts that is not zero."""
    base = tmp_path_factory.mktemp("mixture")
    vocabulary = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    config = Qwen3MoeConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=64, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
        vocab_size=vocabulary, max_position_embeddings=512, initializer_range=0.1, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(7)
    model = Qwen3MoeForCausalLM(config)
    for name, parameter in model.named_parameters():
        if ".gate." in name:  # zero at first: all experts would be equal
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(base)
    for file in MODEL.glob("*token*"):
        (base / file.name).write_bytes(file.read_bytes())
    loaded = load_policy(base, SETTINGS)
    loaded.load_state(random_state(loaded, 3))
    return loaded


@pytest.fixture(scope="module")
def engine(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an engine that serves base + adapter, merged."""
    folder = tmp_path_factory.mktemp("merged")
    state = policy.state()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    lora = LoraShape(RANK, 8.0, policy.modules, ExpertLayout.of("Qwen3MoeForCausalLM", RANK))
    origin = AdapterOrigin("mixture", 1, "mixture@0", policy.base, None)
    published = adapters.publish_adapter(folder / "adapters", origin, lora, state, shapes, {})
    merge.merge_adapter(Path(policy.base), published.path, folder / "model")
    [port] = free_ports(1)
    argv = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model"),
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "256", "--enforce-eager",
        "--kv-cache-memory-bytes", "67108864", "--served-model-name", "merged",
    ]  # fmt: skip
    env = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log, subprocess.Popen(argv, env=env, stdout=log, stderr=log) as process:
        try:
            yield wait_for(f"http://127.0.0.1:{port}", process, folder / "log")
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return url
        except httpx.HTTPError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.parametrize("prompt", PROMPTS, ids=["40 tokens", "6 tokens", "30 tokens"])
def test_a_merged_mixture_is_served_with_the_trainer_s_logprobs(policy: Policy, engine: str, prompt: list[int]) -> None:
    body = {"model": "merged", "prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    answer = httpx.post(f"{engine}/v1/completions", json=body, timeout=120).json()
    served = [
        one[str(token)]["logprob"]
        for one, token in zip(answer["choices"][0]["prompt_logprobs"][1:], prompt[1:], strict=True)
    ]
    expected = trained_logprobs(policy, prompt)
    torch.testing.assert_close(torch.tensor(served), expected, atol=1e-4, rtol=0.0)
    with policy.base_only():
        before = trained_logprobs(policy, prompt)
    assert (expected - before).abs().max() > 0.1


@torch.no_grad()
def trained_logprobs(policy: Policy, prompt: list[int]) -> torch.Tensor:
    """The logprobs of each token after the first one, by the trainer's own pass."""
    [one] = pack([np.array(prompt, np.int32)], SETTINGS.token_budget)
    logprobs = policy.head(policy.hidden(one)).log_softmax(-1)
    return logprobs[torch.arange(len(prompt) - 1), prompt[1:]]
