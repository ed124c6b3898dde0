"""The file that scenarios are written into as they are made: nothing is lost, and nobody else's file is touched."""

from __future__ import annotations

import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.errors import NoTasks
from trainer.scenario_generation.drafts import Draft, DraftChecker, DropReason
from trainer.scenario_generation.output_file import ScenarioWriter
from trainer.scenario_generation.prompts import Difficulty
from trainer.tasks.scenarios import Scenario, read_scenarios, scenario_line


def made(*tasks: str) -> list[Scenario]:
    checker = DraftChecker([])
    found = [checker.check(Draft(task), Difficulty.NOTHING_TO_DO) for task in tasks]
    assert not any(isinstance(one, DropReason) for one in found)
    return [one for one in found if isinstance(one, Scenario)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl"


@pytest.fixture
def left(path: Path) -> list[Scenario]:
    """A file that an earlier run left."""
    scenarios = made("greet the captain", "thank a gardener \ud800")
    file = ScenarioWriter(path)
    file.add(scenarios)
    file.close()
    return scenarios


def test_there_is_no_file_before_the_first_scenario_and_it_is_the_owners_alone(path: Path) -> None:
    file = ScenarioWriter(path)
    file.add([])
    assert not path.exists()
    file.add(made("greet the captain"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.input for one in read_scenarios(path)] == ["greet the captain"]
    file.close()


def test_a_file_is_gone_on_with(path: Path, left: list[Scenario]) -> None:
    file = ScenarioWriter(path)
    assert file.begun == left
    file.add(made("water those lilies"))
    file.close()
    assert read_scenarios(path) == left + made("water those lilies")


@pytest.mark.parametrize("length", [1, 9, 25, 90])
def test_a_line_that_a_crash_tore_is_taken_away(path: Path, left: list[Scenario], length: int) -> None:
    (new,) = made("water those lilies")
    with path.open("ab") as file:
        file.write(scenario_line(new).encode()[:length])
    again = ScenarioWriter(path)
    assert again.begun == left
    again.add([new])
    again.close()
    assert read_scenarios(path) == [*left, new]


@pytest.mark.parametrize("torn", ["", '{"id', '{"id": "nothing-to-do-12'])
def test_a_file_in_which_nothing_was_written_whole_is_begun_anew(path: Path, torn: str) -> None:
    path.write_text(torn)
    file = ScenarioWriter(path)
    assert file.begun == []
    file.add(made("greet the captain"))
    file.close()
    assert read_scenarios(path) == made("greet the captain")


@pytest.mark.parametrize(
    "content",
    [
        "mine",
        "mine\n",
        '{"id": "a", "input": "my own task"}\n',
        '{"id": "a", "input": "x", "reference": {"difficulty": "hard"}}\n',
        '{"id": "a", "input": {"n": 1}, "reference": {"difficulty": "one_tool"}}\n',
        '{"id": "a", "input": "x", "reference": {"difficulty": "one_tool"}}\nmine',
        '{"id": "a", "input": "x", "reference": {"difficulty": ["one_tool"]}}\n',
    ],
)
def test_another_file_is_refused_and_stays_as_it_is(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(NoTasks, match=r"made\.jsonl already exists, .* name another file with --out"):
        ScenarioWriter(path)
    assert path.read_text() == content


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTasks, match="already exists"):
        ScenarioWriter(tmp_path)


def test_one_process_writes_at_a_time(path: Path, left: list[Scenario]) -> None:
    first = ScenarioWriter(path)
    with pytest.raises(NoTasks, match="is being written by another process"):
        ScenarioWriter(path)
    first.close()
    ScenarioWriter(path).close()


def test_a_file_that_came_meanwhile_is_not_written_into(path: Path) -> None:
    file = ScenarioWriter(path)
    path.write_text("mine")
    with pytest.raises(NoTasks, match="already exists"):
        file.add(made("greet the captain"))
    assert path.read_text() == "mine"


MOST = 300


@contextmanager
def small_files() -> Iterator[None]:
    """No file of this process may get larger than this: as on a full disk, a write is cut short. Around one write
    alone: what the tests print may go into a file, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_where_the_disk_is_full_that_is_told_and_whole_lines_stay(path: Path) -> None:
    file = ScenarioWriter(path)
    file.add(made("greet the captain"))
    too_much = made("water those lilies " + "now " * MOST)
    with small_files(), pytest.raises(NoTasks, match=r"cannot be written: File too large: name another"):
        file.add(too_much)
    file.add(made("thank a gardener"))
    file.close()
    assert [one.input for one in read_scenarios(path)] == ["greet the captain", "thank a gardener"]
    assert path.stat().st_size < MOST
