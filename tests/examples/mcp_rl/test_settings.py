"""Both settings files load; what the run's summary takes from the check, and what from the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

import examples.mcp_rl
from examples.mcp_rl.measuring import CheckResult, Right
from examples.mcp_rl.run import beside
from proxy.settings.loader import load_settings

FOLDER = Path(examples.mcp_rl.__file__).parent


@pytest.mark.parametrize("name", ["hone.toml", "gpu.toml"])
def test_it_loads_and_measures_by_wins_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_MCP__SERVER__URL", "http://127.0.0.1:9000/mcp")
    settings = load_settings(FOLDER / name, {}).settings
    assert settings.mcp["server"].url == "http://127.0.0.1:9000/mcp"
    assert settings.campaign.success is None
    assert not settings.campaign.allow_writes
    assert settings.campaign.split is not None
    assert len(settings.campaign.split) == 3


def test_success_is_the_checks_and_the_rest_is_the_campaigns() -> None:
    wins = {"success": 0.9, "attempts": 100, "low": 0.8, "high": 0.95}
    summary = {"before": wins, "after": wins, "steps": [{"step": 1, "success": None, "reward": 0.4}], "alarms": []}
    found = beside(summary, CheckResult(Right(60, 200), Right(190, 200), {1: Right(32, 64)}))
    assert (found["before"]["success"], found["after"]["success"]) == (0.3, 0.95)
    assert found["before"]["low"] < 0.3 < found["before"]["high"]
    assert found["steps"] == [{"step": 1, "success": 0.5, "reward": 0.4}]
    assert Right(0, 0).told()["success"] is None
