"""The short form of examples/rlvr against a real vLLM: no fault, and more texts are, as a whole, what was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.examples.short import run_short

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def test_a_rubric_s_reward_leads_to_texts_that_are_what_was_asked_for(tmp_path: Path) -> None:
    summary = run_short("rlvr", tmp_path)
    assert summary["steps"][-1]["reward"] > summary["steps"][0]["reward"]
    assert summary["judge"]["requests"] > 0
