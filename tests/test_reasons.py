"""Every reason code has a plain sentence. That docs/reasons.md has them all: tests/docs/test_pages.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_args

from judge.errors import JudgeFailed, JudgeUnavailable
from judge.scoring.group_score import NEEDS_TWO
from recorder import reasons
from recorder.errors import FailureKind
from recorder.messages.trainability import Exclusion
from recorder.queue.groups.readiness import GroupCode
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.reasons import REASONS, explain_reason, tone_with_reason
from recorder.states import GroupState, Tone
from scripts import import_map
from trainer.batch.rows import IN_OWN_GROUP, ROW_TOO_LONG
from trainer.objectives.group_rows import UntrainedChoice
from trainer.objectives.imitate_rows import ImitationExclusion
from trainer.preferences.pairs import PairExclusion
from trainer.step.drift.limits import KL_PARENT_MAX
from trainer.teachers.hinted_prompt import HintExclusion

TABLE = [code for sentences in REASONS.values() for code in sentences]


def raised_codes() -> Iterator[str]:
    """The codes with which the judge says that a group cannot be scored."""
    names = {cls.__name__ for cls in (JudgeUnavailable, JudgeFailed)} | {
        cls.__name__ for cls in (*JudgeUnavailable.__subclasses__(), *JudgeFailed.__subclasses__())
    }
    for file in import_map.files("judge"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    yield str(code.value)
                elif isinstance(code, ast.JoinedStr):  # "judge_", and how the model failed
                    yield from (f"{ast.literal_eval(code.values[0])}{how}" for how in get_args(FailureKind))


def test_every_code_has_a_sentence() -> None:
    codes = {
        *Exclusion,
        *GroupCode,
        *UntrainedChoice,
        *ImitationExclusion,
        *PairExclusion,
        *HintExclusion,
        NEEDS_TWO,
        ROW_TOO_LONG,
        IN_OWN_GROUP,
        DRIFT_SET,
        KL_PARENT_MAX,
        *raised_codes(),
    }
    assert "judge_down" in codes
    assert not sorted(codes - set(TABLE))


def test_a_code_stands_once_and_a_sentence_is_one() -> None:
    assert len(TABLE) == len(set(TABLE))
    for code in TABLE:
        sentence = explain_reason(code)
        assert sentence is not None
        assert sentence[0].isupper() or sentence[0] == "`"
        assert sentence.endswith(".")
    assert explain_reason("promote") is None


def test_every_tone_is_of_a_known_code_and_no_code_has_two() -> None:
    assert set(TABLE) >= reasons._FAULTS | reasons._ATTENTION
    assert not reasons._FAULTS & reasons._ATTENTION


def test_an_exclusion_that_is_no_fault_is_neutral_and_a_state_has_the_tone_of_its_reason() -> None:
    for code in ("too_few", "zero_variance", "too_close", "ruler_needs_two", "measured", "held_out_scenario"):
        assert tone_with_reason("left_out", code) is Tone.NEUTRAL
    assert tone_with_reason("left_out", "step_failed") is Tone.FAULT
    assert tone_with_reason("unscored", "judge_down") is Tone.FAULT
    assert tone_with_reason("errored", None) is Tone.FAULT
    assert {state: tone_with_reason(state, None) for state in GroupState} == {
        GroupState.OPEN: Tone.NEUTRAL,
        GroupState.READY: Tone.NEUTRAL,
        GroupState.JUDGING: Tone.NEUTRAL,
        GroupState.SCORED: Tone.GOOD,
        GroupState.UNSCORED: Tone.ATTENTION,
        GroupState.TRAINING: Tone.NEUTRAL,
        GroupState.TRIED: Tone.ATTENTION,
        GroupState.TRAINED: Tone.GOOD,
        GroupState.LEFT_OUT: Tone.NEUTRAL,
        GroupState.MEASURED: Tone.NEUTRAL,
    }
