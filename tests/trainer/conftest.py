"""A tiny random Qwen3, made once: real code paths of transformers and peft in milliseconds. What others commit is heard
of sooner than in service.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VOCABULARY = 64


@pytest.fixture(autouse=True)
def _others_are_heard_of_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign and the ring around it have a store each, and wait for one another at every step."""
    monkeypatch.setattr("recorder.store.changes.EVERY_S", 0.01)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no `HONE_…` variable: for commands that are run in this process."""
    for name in list(os.environ):
        if name.upper().startswith("HONE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Qwen3 of 2 layers, grouped-query attention and tied embeddings; random weights, float32."""
    return save_tiny_base(tmp_path_factory.mktemp("base"))


def save_tiny_base(folder: Path) -> Path:
    """Write that base into a folder: the same weights each time."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    config = Qwen3Config(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=96,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.1,  # far from uniform, so that a wrong context changes a logprob visibly
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_policy(tiny_base: Path) -> Callable[..., Any]:
    """Loads the tiny base with the given settings, on the CPU unless they say otherwise."""

    def load(**changes: Any) -> Any:
        from trainer.policy.base_model import load_policy
        from trainer.settings import TrainerSettings

        given = {"device": "cpu", "rank": 4, "alpha": 8.0, "token_budget": 512, **changes}
        return load_policy(tiny_base, TrainerSettings(**given))

    return load
