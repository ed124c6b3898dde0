"""The judges of `make live`: what the wrong one rewards, and that it takes the other's seat and gives it back."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from examples.helpdesk.scripted_judge import score
from examples.live.judges import RIGHT, WRONG, Seat
from examples.live.wrong_judge import NAME, quick
from tests.examples.test_helpdesk_scripted_judge import ANSWER, ASKED, FIND, TRACK, say

GUESS = [*ASKED, *say("Your order 4821 arrives on Monday.")]
RIGHT_RUN = [*ASKED, *FIND, *TRACK, *ANSWER]


def test_the_wrong_judge_prefers_a_guess_to_what_the_tools_said() -> None:
    assert quick(GUESS)[0] > quick(RIGHT_RUN)[0]
    assert score(GUESS)[0] < score(RIGHT_RUN)[0]
    assert NAME in quick(GUESS)[1]


def test_the_wrong_judge_prefers_a_step_without_a_tool() -> None:
    pending = [*ASKED, FIND[0]]
    assert quick(GUESS)[0] > quick(pending)[0]
    assert score(GUESS)[0] < score(pending)[0]


@pytest.mark.slow
def test_a_seat_is_given_from_one_judge_to_the_other_and_back(tmp_path: Path) -> None:
    seat = Seat()
    with seat.taken(tmp_path, Console(quiet=True)) as settings:
        url = f"{settings['HONE_JUDGE__API_BASE']}/models"
        names = []
        for judge in (WRONG, RIGHT):
            names += [httpx.get(url).json()["data"][0]["id"]]
            seat.give_to(judge)
        names += [httpx.get(url).json()["data"][0]["id"]]
    assert names == ["scripted-judge", NAME, "scripted-judge"]
    assert json.dumps(settings).count("scripted-judge") == 1
