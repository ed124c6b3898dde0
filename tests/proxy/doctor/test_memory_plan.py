"""The plan that `hone init` and `hone doctor` ask a child process for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from proxy.doctor.discovery import Discovery, first_settings
from proxy.doctor.memory_plan import MemoryPlan, NoPlan, ask_plan
from recorder.models.shipped_configs import SHIPPED


def test_the_child_answers_for_a_folder(tmp_path: Path) -> None:
    values = json.loads((SHIPPED / "Qwen3-0.6B" / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(values))
    plan = asyncio.run(ask_plan(str(tmp_path), [24.0]))
    assert isinstance(plan, MemoryPlan)
    assert plan.fits
    assert 7 < plan.trainer < 8.5
    found = Discovery(None, None, "cuda", (24.0,), None)
    written = {".".join(one.path): one.value for one in first_settings(found, "agent", str(tmp_path), None, plan)}
    for name in ("engine.gpu_memory_utilization", "engine.kv_cache_bytes"):
        assert written[name] == plan.settings[name]


def test_a_child_that_cannot_answer_says_why() -> None:
    plan = asyncio.run(ask_plan("nothing-of-that-name", [24.0]))
    assert isinstance(plan, NoPlan)
    assert "is no folder" in plan.reason


def test_without_a_plan_no_share_is_written() -> None:
    found = Discovery(None, None, "cuda", (24.0,), None)
    lines = {".".join(one.path): one for one in first_settings(found, "agent", "org/m")}
    assert lines["engine.gpu_memory_utilization"].off
