"""The chart of campaigns: one over the other, at the steps that either has measured."""

from __future__ import annotations

from recorder.states import CampaignState
from recorder.stats.means import Interval
from recorder.views.campaigns.measures import Kind, Measure
from recorder.views.campaigns.progress import CampaignMeasurement, CampaignProgress
from recorder.views.charts.campaigns import campaign_chart, choose_campaigns


def campaign(id_: str, name: str, kind: Kind = "success", **at: float) -> CampaignProgress:
    """A campaign with a measure after each step (`s3=0.5`)."""
    measured = [
        CampaignMeasurement(
            int(step[1:]), "a@1", Measure(kind, value, 8, Interval(value - 0.1, value + 0.1), "validation")
        )
        for step, value in at.items()
    ]
    return CampaignProgress(id_, name, "a", CampaignState.RUNNING, None, 3, None, 0, measured, [], 0.0, None)


def test_two_campaigns_share_the_steps_that_either_has_measured() -> None:
    chart = campaign_chart([campaign("c1", "one", s0=0.2, s4=0.5), campaign("c2", "two", s2=0.3)])
    assert (chart.places, chart.axis.at, chart.share) == (("0", "2", "4"), (0.0, 2.0, 4.0), True)
    assert [(one.name, one.values) for one in chart.series] == [("one", (0.2, None, 0.5)), ("two", (None, 0.3, None))]
    assert chart.series[1].low == (None, 0.19999999999999998, None)
    assert chart.title == "Success after each step"


def test_campaigns_of_one_name_are_told_apart_by_their_ids() -> None:
    chart = campaign_chart([campaign("camp_1", "one", s0=0.2), campaign("camp_2", "one", s0=0.3)])
    assert len({one.name for one in chart.series}) == 2


def test_a_reward_is_no_share() -> None:
    chart = campaign_chart([campaign("c1", "one", "reward", s0=1.5), campaign("c2", "two", s0=0.5)])
    assert not chart.share
    assert chart.title == "Reward and success after each step"


def test_without_a_measure_the_chart_is_empty_and_says_what_it_waits_for() -> None:
    chart = campaign_chart([campaign("c1", "one")])
    assert chart.empty
    assert "first point" in chart.waits_for


def test_the_newest_campaign_is_drawn_where_no_other_is_asked_for() -> None:
    newest = [campaign("c2", "two"), campaign("c1", "one")]
    assert [one.id for one in choose_campaigns(newest, [])] == ["c2"]
    assert [one.id for one in choose_campaigns(newest, ["", "nobody"])] == ["c2"]
    assert [one.id for one in choose_campaigns(newest, ["c1", "c2", "c1"])] == ["c1", "c2"]
