"""The instructions: 40 kinds that are trained and 10 that are not, no topic in two parts, in a form that Hone reads."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from examples.smollm import tasks
from examples.smollm.constraints import CONSTRAINTS
from examples.smollm.tasks import TEST_TOPICS, TRAIN_TOPICS, TRAINED, UNTRAINED, VALIDATION_TOPICS, kind_of, name_of
from recorder.llm.rubric import RuleCheck, parse_criteria
from trainer.tasks import scenarios, selection


@pytest.fixture(params=[7, 11, 23])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, list[scenarios.Scenario]]:
    made = tasks.write(tmp_path, request.param)
    paths = {"train": made.learn, "val": made.validation, "test": made.test}
    return {part: scenarios.read_scenarios(path) for part, path in paths.items()}


def test_there_are_40_kinds_and_10_that_are_never_trained() -> None:
    assert len(set(TRAINED)) == 40
    assert len(set(UNTRAINED)) == 10
    assert not set(map(frozenset, TRAINED)) & set(map(frozenset, UNTRAINED))
    trained = set(itertools.chain(*TRAINED))
    assert sum(not set(kind) <= trained for kind in UNTRAINED) == 5
    assert trained | set(itertools.chain(*UNTRAINED)) == CONSTRAINTS.keys()


def test_no_topic_is_in_two_parts() -> None:
    topics = [*TRAIN_TOPICS, *VALIDATION_TOPICS, *TEST_TOPICS]
    assert len(set(topics)) == len(topics)
    assert all(topic.isalpha() and topic.islower() for topic in topics)


def test_hone_reads_them_and_code_decides_every_criterion(parts: dict[str, list[scenarios.Scenario]]) -> None:
    selection.require_apart(parts)
    for scenario in itertools.chain(*parts.values()):
        criteria = parse_criteria(scenario.rubric)
        assert all(isinstance(one.check, RuleCheck) for one in criteria)
        assert criteria[-1].id == "substance"
        assert all(one.text in scenario.input for one in criteria[:-1])
        assert kind_of(scenario.id) == name_of([one.id for one in criteria[:-1]])


def test_the_end_has_400_instructions_of_trained_kinds_and_none_of_the_others_is_trained(
    parts: dict[str, list[scenarios.Scenario]],
) -> None:
    trained, untrained = set(map(name_of, TRAINED)), set(map(name_of, UNTRAINED))
    counts = Counter(kind_of(one.id) for one in parts["test"])
    assert sum(counts[name] for name in trained) == 400
    assert {counts[name] for name in trained} == {10}
    assert sum(counts[name] for name in untrained) == 200
    assert {kind_of(one.id) for one in (*parts["train"], *parts["val"])} == trained
    assert {one.id.partition(".")[2] for one in parts["test"]} <= set(TEST_TOPICS)


def test_the_same_seed_writes_the_same_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (tasks.write(tmp_path / name, seed) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
    assert first.test.read_bytes() == again.test.read_bytes()
    assert first.learn.read_bytes() != other.learn.read_bytes()
