"""MLflow: a run on its tracking server, or in its database.

Owns: finding the run to resume, by a tag. Refuses: what `mlflow.start_run` would add: user, source, git.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking.client import MlflowClient

from trainer.track_settings import TrackSettings
from trainer.trackers.base import ID_TAG, Tracker, TrackerEntry, TrackerRun

_REFUSED = re.compile(r"[^\w. :/-]", re.ASCII)  # in a metric's name
_MOST_PARAMS = 100  # in one request


def begin(run: TrackerRun, settings: TrackSettings) -> Tracker:
    """Find the experiment and the run, or make them. Raises MLflow's own errors."""
    client = MlflowClient(settings.mlflow)
    there = client.get_experiment_by_name(settings.mlflow_experiment)
    experiment = (
        there.experiment_id
        if there
        else client.create_experiment(settings.mlflow_experiment, artifact_location=_files(run, settings))
    )
    found = client.search_runs([experiment], f"tags.`{ID_TAG}` = '{run.id}'", max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return _MlflowTracker(client, found[0].info.run_id)
    made = client.create_run(experiment, tags={ID_TAG: run.id}, run_name=run.name)
    params = [Param(key, str(value)) for key, value in run.settings.items()]
    for first in range(0, len(params), _MOST_PARAMS):
        client.log_batch(made.info.run_id, params=params[first : first + _MOST_PARAMS])
    return _MlflowTracker(client, made.info.run_id)


def _files(run: TrackerRun, settings: TrackSettings) -> str | None:
    """Where transcripts are stored; None: the server decides. The default of a database is the working directory."""
    assert settings.mlflow is not None  # this setting selects MLflow
    return None if settings.mlflow.startswith(("http", "databricks", "uc")) else str(Path(run.folder) / "mlflow")


class _MlflowTracker:
    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client = client
        self._id = run_id

    def log(self, nth: int, entry: TrackerEntry) -> None:
        now_ms = int(time.time() * 1000)
        metrics = [Metric(_REFUSED.sub("_", name), value, now_ms, entry.step) for name, value in entry.figures.items()]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)
        for name, text in entry.texts.items():
            self._client.log_text(self._id, text, f"{_REFUSED.sub('_', name)}/{entry.step}.txt")

    def end(self, reason: str, *, failed: bool) -> None:
        self._client.set_tag(self._id, "hone.reason", reason)
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")
