"""The settings of each traffic, as `make live` gives them to Hone: whole, before the first user comes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from examples.live.live import Plan, Traffic, held_out_flags
from proxy.settings.loader import load_settings


@pytest.mark.parametrize("traffic", get_args(Traffic))
def test_the_settings_of_each_traffic_can_be_read(tmp_path: Path, traffic: Traffic) -> None:
    held_out = tmp_path / "heldout.jsonl"
    held_out.write_text("")
    plan = Plan(1.0, 7, traffic, tmp_path)
    gate = load_settings(plan.config, held_out_flags(traffic, held_out)).settings.aliases["helpdesk"].gate
    assert gate.scenarios == (held_out if traffic == "swapped-judge" else None)
