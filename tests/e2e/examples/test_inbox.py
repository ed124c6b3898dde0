"""The mailbox example's short form against a real vLLM: no fault, and success surely rises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.examples.short import run_short

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def test_the_short_form_has_no_fault_and_a_rise(tmp_path: Path) -> None:
    summary = run_short("inbox", tmp_path)
    assert summary["baselines"]["scripted-frontier"]["success"] == 1.0
    assert summary["judge"]["requests"] > 0
