"""Degenerate answers to tasks of the user's own: their functions, rules and criteria know these.

Owns: reading a file of tasks as `hone train` takes them, as far as code needs them, and the cases that they make.
Refuses: asking a judge model about them: nobody knows here what an honest success would be.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from judge.errors import TasksInvalid
from judge.tricks.answers import Told
from judge.tricks.coded import Case
from judge.tricks.groups import group, view
from judge.tricks.kinds import Kind
from judge.tricks.tasks import Attempt, answer
from recorder import rubric
from recorder.errors import RubricInvalid
from recorder.reading.views import ScenarioView

FAILED: Final = "I could not do this. I have no result."


@dataclass(frozen=True, slots=True)
class OwnTask:
    """One task of the file."""

    id: str
    input: Any
    reference: Any
    rubric: Any

    @property
    def ask(self) -> str:
        """What an agent is asked."""
        return self.input if isinstance(self.input, str) else json.dumps(self.input, ensure_ascii=False)

    @property
    def failed(self) -> str:
        """An honest answer of who could not do it."""
        return FAILED

    @property
    def wanted(self) -> Sequence[str]:
        """Its criteria, in words."""
        return [one.text for one in rubric.criteria(self.rubric) if one.weight > 0] if self.rubric else []


def read(path: Path, most: int) -> list[OwnTask]:
    """The first tasks of a JSONL file: objects with `input` (or `prompt`) and, if there are any, `reference`, `rubric`.

    Raises `TasksInvalid`, which names the file and the line.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise TasksInvalid(f"the file of tasks {path} cannot be read: {e}") from e
    there = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not there:
        raise TasksInvalid(f"the file of tasks {path} has no task")
    return [_task(f"{path}, line {number}", number, line) for number, line in there[:most]]


def _task(where: str, number: int, line: str) -> OwnTask:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise TasksInvalid(f"{where}: no JSON: {e}") from e
    asked = one.get("input", one.get("prompt")) if isinstance(one, Mapping) else None
    if not isinstance(one, Mapping) or asked is None:
        raise TasksInvalid(f"{where}: it must be an object with `input` (or `prompt`)")
    criteria = one.get("rubric")
    if isinstance(criteria, list):
        try:
            rubric.criteria(criteria)
        except RubricInvalid as e:
            raise TasksInvalid(f"{where}: its rubric: {e}") from e
    return OwnTask(
        str(one.get("id", number)), asked, one.get("reference"), criteria if isinstance(criteria, list) else None
    )


def cases(tasks: Sequence[OwnTask], kinds: Sequence[Kind], seed: int, told: Told) -> Iterator[Case]:
    """A degenerate answer of each kind to each task, beside an honest failure."""
    for kind in kinds:
        rng = random.Random(f"{seed} own {kind.name}")
        if kind.degenerate is not None:
            for number, task in enumerate(tasks, start=1):
                yield _case(f"{kind.name}-own-{number:02}", kind.name, task, kind.degenerate(task, rng, told))


def _case(name: str, kind: str, task: OwnTask, words: str) -> Case:
    scenario = ScenarioView(task.id, "check", task.input, task.reference, task.rubric)
    said = {f"{name}-{at}": text for at, text in enumerate((task.failed, words), start=1)}
    asked = {"role": "user", "content": task.ask}
    members = [view(id_, Attempt([asked, answer(text)]), (), scenario) for id_, text in said.items()]
    return Case(kind, name, group(name, scenario, members), *said)
