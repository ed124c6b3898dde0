"""What a step costs at a training service is said in tokens, before anything is sampled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.doctor.machine import shares_gpus
from proxy.settings.hone import HoneSettings
from recorder.base.findings import FindingLevel
from tests.trainer.step.tinker.conftest import settings_of
from tests.trainer.tinker_server import KEY, TinkerServer
from trainer.campaign.record import plan_campaign
from trainer.runtime.service_price import explain_campaign_price, explain_plan_price
from trainer.settings import TrainerSettings
from trainer.step.tinker.price import explain_price, step_tokens
from trainer.step.tinker.secret import VARIABLE
from trainer.step.tinker.service_check import check_service


def settings(data: Path, backend: str = "tinker", **campaign: Any) -> HoneSettings:
    given = {
        "agent": "hone:answer",
        "scenarios_per_step": 8,
        "group_size": 4,
        "steps": 3,
        "max_tokens": 100,
        **campaign,
    }
    return HoneSettings.model_validate(
        {"data": str(data), "trainer": {"backend": backend, "token_budget": 1000}, "campaign": given}
    )


def test_each_row_is_computed_twice_and_whole() -> None:
    assert step_tokens(64, 4000) == 512_000
    assert "64 trajectories of 4,000 tokens costs 512,000 tokens there" in explain_price(64, 4000)
    assert "2 x N x T" in explain_price()


def test_a_plan_says_the_most_that_a_step_costs(tmp_path: Path) -> None:
    assert "32 trajectories of 1,000 tokens costs 64,000 tokens" in (explain_plan_price(settings(tmp_path), None) or "")
    assert "32 trajectories of 50 tokens costs 3,200 tokens" in (explain_plan_price(settings(tmp_path), 50) or "")
    assert explain_plan_price(settings(tmp_path, "local"), None) is None


def test_a_campaign_says_the_most_that_it_costs_before_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps({"id": str(n), "input": "x" * 400}) + "\n" for n in range(8)))
    everything = settings(tmp_path / "data", scenarios=str(file))
    plan = plan_campaign(everything.campaign)
    said = asyncio.run(explain_campaign_price(plan, everything))
    # 3 steps of 8 scenarios and 4 attempts, each of 100 tokens of input and at most 100 sampled, computed twice
    assert f"at most {2 * 3 * 8 * 4 * 200:,} tokens for this campaign" in (said or "")
    elsewhere = settings(tmp_path / "data", "local", scenarios=str(file))
    assert asyncio.run(explain_campaign_price(plan, elsewhere)) is None


def test_a_campaign_of_unknown_length_says_so(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"id": "1", "input": "x"}\n')
    everything = settings(tmp_path / "data", scenarios=str(file), agent="my.agent:run")
    said = asyncio.run(explain_campaign_price(plan_campaign(everything.campaign), everything))
    assert "how long trajectories become is unknown" in (said or "")


def test_hone_doctor_asks_the_service_for_its_bases(service: TinkerServer, tiny_base: Path) -> None:
    [found] = check_service(settings_of(tiny_base, service.url), "split")
    assert found.verdict is FindingLevel.FINE
    assert "trains org/tiny with rows of up to 512 tokens" in found.found
    assert not service.bodies("create_model")
    assert not service.sessions
    assert check_service(TrainerSettings(), "split") == []


@pytest.mark.parametrize(
    ("changes", "environment", "words"),
    [
        ({"kl_coef": 0.1}, KEY, "trainer.kl_coef"),
        ({}, "", VARIABLE),
        ({}, "tml-another-0123456789", "refuses the key"),
        ({"tinker": {"base_model": "org/huge"}}, KEY, "trains no base"),
        ({"token_budget": 4096}, KEY, "rows of at most 512 tokens"),
    ],
)
def test_hone_doctor_says_what_is_wrong(
    changes: dict[str, Any],
    environment: str,
    words: str,
    service: TinkerServer,
    tiny_base: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, environment)
    [found] = check_service(settings_of(tiny_base, service.url, **changes), "split")
    assert found.verdict is FindingLevel.WRONG
    assert words in found.found
    assert not environment or environment not in found.line()


def test_the_memory_of_a_gpu_is_not_planned_for_a_trainer_elsewhere() -> None:
    given = {"engine": {"base": "org/base", "device": "cuda"}, "aliases": {"a": {}}}
    local = HoneSettings.model_validate(given)
    remote = HoneSettings.model_validate({**given, "trainer": {"backend": "tinker"}})
    assert shares_gpus(local, [80.0]) is None
    assert "shares no GPU with a trainer" in str(shares_gpus(remote, [80.0]))


def test_settings_name_the_service() -> None:
    given = HoneSettings.model_validate({"trainer": {"tinker": {"checkpoint_days": 30}}})
    assert given.trainer.tinker.checkpoint_days == 30
    with pytest.raises(ValueError, match="checkpoint_days"):
        HoneSettings.model_validate({"trainer": {"tinker": {"checkpoint_days": 0.01}}})
