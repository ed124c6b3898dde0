"""What Weights & Biases wrote offline is what was sent, and nothing else leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.trackers import scripted
from tests.trainer.trackers.wandb_file import figures, history, records
from trainer.track_settings import TrackSettings
from trainer.trackers.event_figures import event_entry, figure_names

pytestmark = pytest.mark.slow

OFFLINE = TrackSettings(wandb_project="p", wandb_mode="offline")


def files(folder: Path) -> list[Path]:
    """One for each process, the oldest first."""
    return sorted((folder / "tracking" / "wandb").glob("offline-run-*/*.wandb"))


async def test_a_whole_campaign_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", scripted.SECRET)
    monkeypatch.setenv("WANDB_API_KEY", f"{scripted.SECRET}-{'x' * 40}")
    events = scripted.campaign()
    heard = await scripted.send(OFFLINE, tmp_path, events)
    assert heard.said == []
    (file,) = files(tmp_path)
    rows = [(row["step"], figures(row)) for row in history(file)]
    made = [one for event in events if (one := event_entry(event))]
    assert rows == [(one.step, dict(one.figures)) for one in made]
    told = {name for _, row in rows for name in row}
    assert [known.pattern for known in figure_names() if not any(known.fits(name) for name in told)] == []
    (run,) = [record.run for record in records(file) if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.project, run.display_name, run.host) == ("cmp_1", "p", "support", "hone")
    assert run.git.commit == run.git.remote_url == ""
    scripted.assert_private(file)


@pytest.mark.long
async def test_a_campaign_that_is_gone_on_with_has_no_step_twice(tmp_path: Path) -> None:
    events = scripted.campaign()
    await scripted.send(OFFLINE, tmp_path, events[:5])
    await scripted.send(OFFLINE, tmp_path, events[6:], before=events[:6])
    rows = [row for file in files(tmp_path) for row in history(file)]
    assert [row["step"] for row in rows if "step/reward" in row] == [1, 2, 3]
    assert [row["_step"] for row in rows] == list(range(len(rows)))


async def test_without_a_key_it_says_what_to_do_and_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {"WANDB_API_KEY": "", "NETRC": str(tmp_path / "none"), "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(variable, value)
    (told,) = (await scripted.send(TrackSettings(wandb_project="p"), tmp_path, scripted.campaign())).said
    assert "wandb is sent nothing more" in told
    assert "wandb login" in told
