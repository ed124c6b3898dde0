"""What of a campaign's events is sent, and that docs/metrics.md tells of exactly that."""

from __future__ import annotations

from dataclasses import replace

from tests.trainer.trackers import scripted
from trainer.progress import Notice, PhaseStatus
from trainer.trackers.event_figures import event_entry, figure_names


def entries_of_a_campaign() -> list[str]:
    return [name for event in scripted.campaign() if (made := event_entry(event)) for name in made.figures]


def test_every_figure_that_is_sent_is_in_the_table() -> None:
    unknown = {name for name in entries_of_a_campaign() if not any(known.fits(name) for known in figure_names())}
    assert unknown == set()


def test_every_figure_in_the_table_is_sent_by_a_whole_campaign() -> None:
    sent = entries_of_a_campaign()
    assert [known.pattern for known in figure_names() if not any(known.fits(name) for name in sent)] == []


def test_a_name_in_the_table_fits_no_other_figure() -> None:
    for name in set(entries_of_a_campaign()):
        assert [known.pattern for known in figure_names() if known.fits(name)] == [
            next(known.pattern for known in figure_names() if known.fits(name))
        ]


def test_each_event_of_a_campaign_has_a_key_of_its_own() -> None:
    keys = [made.key for event in scripted.campaign() if (made := event_entry(event))]
    assert len(set(keys)) == len(keys)
    assert all("\n" not in key for key in keys)


def test_no_word_that_somebody_wrote_is_sent() -> None:
    made = [event_entry(event) for event in scripted.campaign()]
    assert scripted.SECRET not in repr(made)


def test_what_is_said_in_passing_is_no_figure() -> None:
    assert event_entry(Notice("hello")) is None
    assert event_entry(PhaseStatus(1, "sampling")) is None


def test_a_learners_step_without_a_number_is_not_sent() -> None:
    assert event_entry(replace(scripted.step(1), step=0)) is None


def test_what_was_not_measured_or_is_no_number_is_left_out() -> None:
    made = event_entry(replace(scripted.step(1), success=None, metrics={"loss": float("nan"), "lr": 0.5}))
    assert made is not None
    assert "step/success" not in made.figures
    assert {name: value for name, value in made.figures.items() if name.startswith("train/")} == {"train/lr": 0.5}
