"""The states that people read about are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from recorder.states import UNDECIDED, VERSION, GroupState, VersionState

DOCS = Path(__file__).parents[2] / "docs" / "trained.md"


def test_every_state_of_a_group_has_its_sentence() -> None:
    table = DOCS.read_text().partition("## States of a group")[2].partition("##")[0]
    told = re.findall(r"^\| `(\w+)` \| \w", table, re.MULTILINE)
    assert told == [state.value for state in GroupState]


def test_a_version_that_is_decided_goes_nowhere_but_in_and_out_of_service() -> None:
    for decided in set(VersionState) - UNDECIDED:
        assert VERSION.get(decided, frozenset()) <= {VersionState.LIVE, VersionState.RETIRED}
