"""The newest measurement of each judge is kept, by the hash that its scores have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recorder.queue.judging.calibrations import JudgeAgreement, load_agreements, record_agreements
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT

pytestmark = pytest.mark.slow


async def test_a_later_measurement_replaces_an_earlier_one_of_the_same_judge_alone(store: Store) -> None:
    project = Project(store, PROJECT)
    first, other = JudgeAgreement("a", "default", 0.6, 40), JudgeAgreement("b", "brief", 0.9, 31)
    await record_agreements(project, [first, other])
    again = replace(first, agreement=0.7, pairs=50)
    await record_agreements(project, [again])
    assert await load_agreements(project, {"a", "b", "c"}) == {"a": again, "b": other}
    assert await load_agreements(project, {"c"}) == {}
    assert await load_agreements(project, ()) == {}
    await record_agreements(project, [])
