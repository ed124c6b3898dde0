"""What versions' answers to the drift set are worth: kept by member, and their mean among the version's metrics."""

from __future__ import annotations

import pytest

from recorder.registry.drift_scores import DriftScores, load_drift_scores, record_drift_scores
from recorder.registry.versions import get_version
from tests.recorder.learning import Learned
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


async def test_values_are_kept_by_version_and_kind_and_the_mean_is_a_metric(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    first, second = await learned.accepted(1, metrics={"tokens": 7}), await learned.gated(2)
    of_first = DriftScores("reward", {"b": 0.25, "a": 1.0})
    await record_drift_scores(rows.store, first.id, DriftScores("reward", {"a": 0.0}))
    await record_drift_scores(rows.store, first.id, of_first)
    await record_drift_scores(rows.store, second.id, DriftScores("win", {"a": 0.5}))
    metrics = (await get_version(rows.store, first.id)).metrics
    assert (metrics["tokens"], metrics["drift.score"], metrics["drift.scored"]) == (7, 0.625, 2.0)
    ids = [second.id, first.id, "nothing"]
    assert await load_drift_scores(rows.store, ids, "reward") == {first.id: of_first}
    assert await load_drift_scores(rows.store, ids, "win") == {second.id: DriftScores("win", {"a": 0.5})}
