"""People's labels: what a file may hold, and what of the record counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from judge.calibration.labels import PeopleComparison, read_labels, recorded_labels
from judge.errors import LabelsInvalid
from recorder.views.review.human_labels import PreferenceLabel


def test_a_file_holds_pairs_and_scores(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        '{"group": "g", "pair": ["a", "b"], "winner": "b"}\n\n'
        '{"group": "g", "pair": ["a", "c"], "winner": null}\n'
        '{"group": "h", "scores": {"a": 1, "b": 0.5, "c": 2}}\n'
    )
    found = read_labels(path)
    assert [(one.group, one.scores) for one in found] == [
        ("g", {"a": 0.0, "b": 1.0}),
        ("g", {"a": 0.0, "c": 0.0}),
        ("h", {"a": 1.0, "b": 0.5, "c": 2.0}),
    ]
    assert found[2].where == f"{path}, line 4"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "has no label"),
        ("{", "line 1: not JSON"),
        ("[]", "line 1: it must be an object with `group`"),
        ('{"group": "g"}', "not both"),
        ('{"group": "g", "pair": ["a", "b"], "winner": "a", "scores": {}}', "not both"),
        ('{"group": "g", "pair": ["a", "a"], "winner": "a"}', "two different trajectories"),
        ('{"group": "g", "pair": ["a", 1], "winner": "a"}', "two different trajectories"),
        ('{"group": "g", "pair": ["a", "b"], "winner": "c"}', "one of the pair"),
        ('{"group": "g", "pair": ["a", "b"]}', "one of the pair"),
        ('{"group": "g", "pair": ["a", "b"], "winner": ["a"]}', "one of the pair"),
        ('{"group": "g", "scores": {"a": 1}}', "two trajectories or more"),
        ('{"group": "g", "scores": {"a": 1, "b": true}}', "the score of 'b' must be a finite number"),
        ('{"group": "g", "scores": {"a": 1, "b": NaN}}', "the score of 'b' must be a finite number"),
        ('{"group": "g", "scores": {"a": 1, "b": "x"}}', "the score of 'b' must be a finite number"),
    ],
)
def test_a_line_that_is_no_label_is_refused(line: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line)
    with pytest.raises(LabelsInvalid, match=why):
        read_labels(path)


def test_of_the_record_preferences_count_and_feedback_on_two_runs_or_more() -> None:
    found = recorded_labels([PreferenceLabel("g", "a", "b")], {"h": {"c": 1.0, "d": 0.0}, "alone": {"e": 1.0}})
    assert found == [PeopleComparison("g", {"a": 1.0, "b": 0.0}), PeopleComparison("h", {"c": 1.0, "d": 0.0})]
