"""What a long run reads from Hone's store: each form's figures, the newest drift, and which phases are over."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from examples.rlvr.long_run.phases import plan_phases
from examples.rlvr.long_run.reading import Answer, form_point, newest_drift, read_phase
from recorder.queue import campaigns
from recorder.registry.aliases import ensure_alias
from recorder.settings import RecorderSettings
from recorder.states import CampaignState
from recorder.stats.means import share_interval
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project
from recorder.views.campaigns.events import STEP, StepDone
from trainer.campaign.record import write_event

PHASE = plan_phases()[1]


def step_done(number: int, **metrics: float) -> StepDone:
    drift = {f"drift.{name}": value for name, value in metrics.items()}
    return StepDone(number, f"rlvr@{number}", "rlvr@0", 0.5, 0.9, None, None, None, 64, 0, 64, metrics=drift)


def test_a_form_s_figures_are_means_over_its_answers_and_over_their_tokens() -> None:
    point = form_point([Answer(True, [-1.0, -2.0, -3.0], False), Answer(False, [-6.0], True)])
    sure = share_interval(0.5, 2)
    assert sure is not None
    assert (point.answers, point.success, point.tokens, point.cut_off) == (2, 0.5, 2.0, 0.5)
    assert point.entropy == pytest.approx(3.0)  # of four tokens, not of two answers
    assert math.isclose(point.low, sure.low, abs_tol=1e-5)


def test_the_drift_is_that_of_the_newest_step_that_has_it() -> None:
    steps = [step_done(1, kl_base=0.1, kl_parent=0.01), step_done(2, kl_base=0.2, kl_parent=0.02), step_done(3)]
    assert newest_drift(steps) == {"kl_base": 0.2, "kl_parent": 0.02}
    assert newest_drift(steps[2:]) == {}
    assert newest_drift([]) == {}


async def test_a_phase_without_a_campaign_has_not_begun_and_a_finished_one_is_over(tmp_path: Path) -> None:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    try:
        news = await read_phase(tmp_path, RecorderSettings(), PHASE, lambda _: False)
        assert (news.over, news.steps_done) == (False, 0)
        project = Project(store, DEFAULT_PROJECT)
        alias = await ensure_alias(project, "rlvr", "base", "fingerprint")
        campaign = await campaigns.create_campaign(project, alias.id, PHASE.name, {})
        await write_event(store, campaign, STEP, step_done(1))
        news = await read_phase(tmp_path, RecorderSettings(), PHASE, lambda _: False)
        assert (news.over, news.steps_done, list(news.points)) == (False, 1, [])
        await campaigns.finish_campaign(store, campaign.id, CampaignState.FINISHED, "steps")
        assert (await read_phase(tmp_path, RecorderSettings(), PHASE, lambda _: False)).over
    finally:
        await store.close()
