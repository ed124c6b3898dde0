"""The short form of examples/mcp_rl: tasks from a URL, no fault, and a sure rise that the campaign never saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.examples.short import run_short

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def test_nothing_but_a_url_leads_to_a_better_agent(tmp_path: Path) -> None:
    summary = run_short("mcp_rl", tmp_path)
    assert summary["wins"]["after"]["success"] > summary["wins"]["before"]["success"]
    assert summary["generated"]["tools_left_out"] == ["reserve"]
