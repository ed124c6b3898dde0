"""Degenerate answers to the user's own tasks, for the functions, rules and criteria that know those tasks.

Owns: reading a file of tasks in the form that `hone train` accepts, and the cases made from them. Refuses: asking a
judge model about them, because Hone does not know what an honest success would be.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from judge.adversarial.groups import attempt_view, trial_group
from judge.adversarial.part_trials import CodeCase
from judge.adversarial.tasks import TaskAttempt, final_message
from judge.adversarial.tricks import RecipeContext, TrickKind
from judge.errors import TasksInvalid
from recorder.errors import RubricInvalid
from recorder.llm import rubric
from recorder.views.trajectories.shapes import ScenarioView

FAILED: Final = "I could not do this. I have no result."


@dataclass(frozen=True, slots=True)
class UserTask:
    """One task of the file."""

    id: str
    input: Any
    reference: Any
    rubric: Any

    @property
    def ask(self) -> str:
        """The agent's request."""
        return self.input if isinstance(self.input, str) else json.dumps(self.input, ensure_ascii=False)

    @property
    def failed(self) -> str:
        """The honest answer of an agent that could not do it."""
        return FAILED

    @property
    def wanted(self) -> Sequence[str]:
        """Its criteria, as text."""
        return [one.text for one in rubric.parse_criteria(self.rubric) if one.weight > 0] if self.rubric else []


def read_user_tasks(path: Path, most: int) -> list[UserTask]:
    """The first tasks of a JSONL file: objects with `input` (or `prompt`), and optionally `reference` and `rubric`.

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


def _task(where: str, number: int, line: str) -> UserTask:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise TasksInvalid(f"{where}: not JSON: {e}") from e
    asked = one.get("input", one.get("prompt")) if isinstance(one, Mapping) else None
    if not isinstance(one, Mapping) or asked is None:
        raise TasksInvalid(f"{where}: it must be an object with `input` (or `prompt`)")
    criteria = one.get("rubric")
    if isinstance(criteria, list):
        try:
            rubric.parse_criteria(criteria)
        except RubricInvalid as e:
            raise TasksInvalid(f"{where}: its rubric: {e}") from e
    return UserTask(
        str(one.get("id", number)), asked, one.get("reference"), criteria if isinstance(criteria, list) else None
    )


def user_cases(
    tasks: Sequence[UserTask], kinds: Sequence[TrickKind], seed: int, recipe: RecipeContext
) -> Iterator[CodeCase]:
    """A degenerate answer of each kind to each task, beside an honest failure."""
    for kind in kinds:
        rng = random.Random(f"{seed} own {kind.name}")
        if kind.degenerate is not None:
            for number, task in enumerate(tasks, start=1):
                yield _case(f"{kind.name}-own-{number:02}", kind.name, task, kind.degenerate(task, rng, recipe))


def _case(name: str, kind: str, task: UserTask, words: str) -> CodeCase:
    scenario = ScenarioView(task.id, "check", task.input, task.reference, task.rubric)
    answers = {f"{name}-{at}": text for at, text in enumerate((task.failed, words), start=1)}
    asked = {"role": "user", "content": task.ask}
    members = [
        attempt_view(id_, TaskAttempt([asked, final_message(text)]), (), scenario) for id_, text in answers.items()
    ]
    return CodeCase(kind, name, trial_group(name, scenario, members), *answers)
