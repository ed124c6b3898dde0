"""Torch's expandable segments: set in the trainer's process, for a GPU, unless the user has set the allocator."""

from __future__ import annotations

import os

import pytest
import torch

from trainer.policy import memory


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The settings that torch's allocator gets."""
    for name in memory._ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    found: list[str] = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", found.append)
    return found


def test_a_gpus_segments_grow_and_no_variable_is_set(chosen: list[str]) -> None:
    before = dict(os.environ)
    memory.use_expandable_segments(torch.device("cuda"))
    assert chosen == ["expandable_segments:True"]
    assert dict(os.environ) == before


def test_a_cpu_has_no_segments(chosen: list[str]) -> None:
    memory.use_expandable_segments(torch.device("cpu"))
    assert chosen == []


@pytest.mark.parametrize("name", memory._ALLOCATOR)
def test_what_a_user_has_set_stays(name: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:128")
    memory.use_expandable_segments(torch.device("cuda"))
    assert chosen == []
