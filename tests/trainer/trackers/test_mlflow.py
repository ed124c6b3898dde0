"""MLflow's own client finds in its database what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.trackers import scripted
from trainer.track_settings import TrackSettings
from trainer.trackers.event_figures import event_entry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # MLflow's migrations alone take a while
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),  # MLflow's, where we read
]


async def test_a_campaign_over_two_processes_is_one_run_without_a_step_twice(tmp_path: Path) -> None:
    from mlflow.tracking.client import MlflowClient  # takes seconds, which every worker would wait for

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    settings, events = TrackSettings(mlflow=uri), scripted.campaign()
    heard = await scripted.send(settings, tmp_path, events[:5])
    heard.said += (await scripted.send(settings, tmp_path, events[6:], before=events[:6])).said
    assert heard.said == []
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("hone")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.tags["hone.reason"]) == ("support", "FINISHED", "target")
    assert run.data.params == {"campaign.steps": "3", "trainer.loss": "cispo"}
    sent = {name.replace("@", "_") for event in events if (made := event_entry(event)) for name in made.figures}
    assert set(run.data.metrics) == sent
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert sorted((one.step, one.value) for one in losses) == [(1, 1.25), (2, 2.25), (3, 3.25)]
    assert not {"mlflow.user", "mlflow.source.name", "mlflow.source.git.commit"} & run.data.tags.keys()
    assert scripted.SECRET.encode() not in (tmp_path / "mlflow.db").read_bytes()
