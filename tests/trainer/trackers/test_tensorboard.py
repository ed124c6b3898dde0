"""TensorBoard's own reader finds in the folder what was sent, over two processes of one campaign."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer.trackers import scripted
from trainer.track_settings import TrackSettings
from trainer.trackers.event_figures import event_entry, figure_names

pytestmark = pytest.mark.slow


def read(folder: Path) -> EventAccumulator:
    (run,) = (folder / "runs").iterdir()
    found = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


async def test_a_whole_campaign_is_found_again(tmp_path: Path) -> None:
    events = scripted.campaign()
    heard = await scripted.send(TrackSettings(tensorboard=tmp_path / "runs"), tmp_path, events)
    assert heard.said == []
    found = read(tmp_path)
    tags = found.Tags()
    sent = {name for event in events if (made := event_entry(event)) for name in made.figures}
    assert set(tags["scalars"]) == sent
    assert [known.pattern for known in figure_names() if not any(known.fits(tag) for tag in tags["scalars"])] == []
    assert [(one.step, one.value) for one in found.Scalars("train/loss")] == [(1, 1.25), (2, 2.25), (3, 3.25)]
    assert found.Tensors("end/reason")[0].tensor_proto.string_val == [b"target"]
    assert b"campaign.steps | 3" in found.Tensors("settings")[0].tensor_proto.string_val[0]


@pytest.mark.long
async def test_a_campaign_that_is_gone_on_with_has_no_step_twice(tmp_path: Path) -> None:
    settings, events = TrackSettings(tensorboard=tmp_path / "runs"), scripted.campaign()
    await scripted.send(settings, tmp_path, events[:5])
    await scripted.send(settings, tmp_path, events[6:], before=events[:6])
    found = read(tmp_path)
    assert [one.step for one in found.Scalars("step/reward")] == [1, 2, 3]
    assert len(found.Tensors("settings")) == 1


async def test_nothing_tells_whose_machine_it_was(tmp_path: Path) -> None:
    await scripted.send(TrackSettings(tensorboard=tmp_path / "runs"), tmp_path, scripted.campaign())
    scripted.assert_private(*(tmp_path / "runs").glob("*/*"))
