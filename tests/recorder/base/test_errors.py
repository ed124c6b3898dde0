"""What a command says and exits with when it fails."""

from __future__ import annotations

import pytest

from judge.errors import JudgeMisconfigured, LabelsInvalid
from proxy.errors import ConfigError, PortInUse
from recorder.base.errors import FAILED, MISCONFIGURED, explain
from recorder.errors import NotFound, SchemaMismatch
from trainer.errors import BaseMismatch, CampaignError, ScenariosInvalid, UnsupportedModel

MENDED_BY_SETTINGS = [ConfigError, JudgeMisconfigured, BaseMismatch, UnsupportedModel, ScenariosInvalid]


@pytest.mark.parametrize("error", MENDED_BY_SETTINGS)
def test_what_starting_again_would_not_change_has_a_code_of_its_own(error: type[Exception]) -> None:
    assert explain(error("there is no x")) == ("there is no x", MISCONFIGURED)


@pytest.mark.parametrize("error", [PortInUse, LabelsInvalid, NotFound, SchemaMismatch, CampaignError])
def test_another_expected_error_fails(error: type[Exception]) -> None:
    assert explain(error("there is no x")) == ("there is no x", FAILED)


@pytest.mark.parametrize("bug", [ValueError("x"), KeyError("x"), ModuleNotFoundError("x", name="sqlalchemy")])
def test_a_bug_is_not_explained(bug: Exception) -> None:
    assert explain(bug) is None


def test_a_missing_trainer_is_explained() -> None:
    told = explain(ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert told is not None
    assert told[1] == FAILED
    assert "pip install 'hone-proxy[cpu]'" in told[0]
