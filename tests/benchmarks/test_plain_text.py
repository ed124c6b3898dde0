"""The reference is the class itself, and a part of it only where the class fails for lack of images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.families.plain_text import text_logits

IDS = torch.arange(3)[None]


class WholeModel:
    """A class that reads images. `missing`: the attribute that it fails for; None: it works."""

    def __init__(self, missing: str | None) -> None:
        self.missing = missing

    def __call__(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        outputs = SimpleNamespace(logits=torch.ones(1))
        return outputs if self.missing is None else getattr(outputs, self.missing)

    def language_model(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        return SimpleNamespace(logits=torch.full((1,), 2.0))


def test_a_class_that_works_is_the_reference_and_its_part_where_it_lacks_images() -> None:
    assert text_logits(WholeModel(None), IDS) == 1
    assert text_logits(WholeModel("image_outputs"), IDS) == 2


def test_another_fault_is_no_reason_to_use_the_part() -> None:
    with pytest.raises(AttributeError, match="router_logits"):
        text_logits(WholeModel("router_logits"), IDS)
