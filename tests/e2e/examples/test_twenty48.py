"""The short form of examples/twenty48 against a real vLLM: no fault, more games are won, and there is less talk.

By calculation a hundred games each miss a sure rise from 20 to 41 or 45 % in two or one runs of a hundred, and any
rise in less than one of a thousand. That talk became rarer is seen in every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.running.campaign import Project
from examples.twenty48.run import TWENTY48
from tests.e2e.examples.short import run_short

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def test_a_game_s_own_reward_leads_to_more_games_that_are_won_and_less_talk(tmp_path: Path) -> None:
    summary = run_short("twenty48", tmp_path, surely=False)
    assert summary["judge"] == {"requests": 0, "groups": 0, "in_vain": 0, "tokens": 0}
    after, before = Project(TWENTY48.folder / "hone.toml", tmp_path, {}).report()["tests"]
    assert before["version"] == "base"
    assert after["figures"]["tokens"] < 0.75 * before["figures"]["tokens"]  # an attempt's: a word is one, talk up to 22
