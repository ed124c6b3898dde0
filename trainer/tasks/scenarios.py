"""Scenario files: JSON in, checked scenarios out.

Owns: the form of a scenario (`{"id", "input", "reference"?, "rubric"?, "adversarial"?}` a line), the form of a table's
row (`{"prompt", "task_id"?, "rubric - 1. criterion", …}`; other columns and empty criteria are ignored, and columns
that look like criteria are named), errors that name the line, and writing a file. Refuses: the store, and the meaning
of input and reference, which only the agent and the judge know. A rubric that is a list must have criteria that can be
judged (`recorder.llm.rubric`); a row must have a prompt and at least one criterion, and no criterion's number twice.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from recorder.errors import InvalidId, RubricInvalid
from recorder.ids import check_external
from recorder.llm import rubric
from recorder.processes import file_modes
from trainer.errors import NoTasks, ScenariosInvalid
from trainer.tasks.json_objects import DuplicateKeys, FileFault, FileObject, InvalidObject, read_objects

_CRITERION: Final = re.compile(r"rubric\s*-\s*([0-9]{1,9})\s*\.\s*criterion", re.ASCII)
_FIRST: Final = "rubric - 1. criterion"
# Whoever names a column with one of these words means it to count.
_OF_A_CRITERION: Final = ("rubric", "criteri", "weight")
_NEAR: Final = 0.8  # difflib's ratio: "rubrik - 2. criteria" is 0.88, "rubric - 1. weight" 0.67
_MOST_COMPARED: Final = 64  # characters: longer names are no misspelt ones, and comparing is quadratic
_KEYS = ("id", "input", "reference", "rubric", "adversarial")
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Scenario:
    """One task. `adversarial`: it tempts the agent to cheat. `place`: the file and line it was read from.

    `ignored`: the columns of its row that look like criteria and were not read.
    """

    id: str
    input: Any
    reference: Any = None
    rubric: Any = None
    adversarial: bool = False
    place: str = field(default="", compare=False)
    ignored: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class IgnoredColumn:
    """A table's column that looks like a criterion and is not read.

    `tasks`: how many have it; `place`: where the first was read; `meant`: the criterion's column that it nearly is.
    """

    name: str
    tasks: int
    place: str
    meant: str

    def __str__(self) -> str:
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks, the first"
        if self.meant:
            hint = f"a criterion's column is named {self.meant!r}"
        elif "weight" in self.name.casefold():
            hint = 'a table has no weights; a scenario has: "rubric": [{"text": "…", "weight": 2}]'
        else:
            hint = f"a criterion's column is named as {_FIRST!r} is"
        return f"the column {self.name!r:.80} ({tasks} at {self.place}) is not read: {hint}"


def ignored_columns(found: Iterable[Scenario]) -> list[IgnoredColumn]:
    """The columns that look like criteria and were not read, each once, in their order."""
    tasks = Counter[str]()
    places: dict[str, str] = {}
    for one in found:
        for name in one.ignored:
            tasks[name] += 1
            places.setdefault(name, one.place)
    return [IgnoredColumn(name, tasks[name], place, _meant_criterion(name)) for name, place in places.items()]


def read_scenarios(path: Path) -> list[Scenario]:
    """Read a JSONL file. Raises `ScenariosInvalid`, which names the file and every line at fault (the first ten)."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise ScenariosInvalid(f"the scenario file {path} cannot be read: {e.strerror or e}") from e
    return parse_scenarios(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), str(path))


def parse_scenarios(lines: Iterable[bytes], source: str) -> list[Scenario]:
    """Scenarios of a file's lines, in order. Raises `ScenariosInvalid`."""
    found: list[Scenario] = []
    faults: list[str] = []
    first_line: dict[str, int] = {}
    for one in read_objects(lines):
        if isinstance(one, FileFault):
            faults.append(f"line {one.line}: {one.why}")
            continue
        try:
            scenario = replace(_scenario(one), place=f"{source}, line {one.line}")
        except InvalidObject as e:
            faults.append(f"line {one.line_of(e)}: {one.name}{e}")
            continue
        if scenario.id in first_line:
            faults.append(
                f"line {one.line}: {one.name}the id {scenario.id!r} is taken by line {first_line[scenario.id]}"
            )
        first_line.setdefault(scenario.id, one.line)
        found.append(scenario)
    if faults:
        more = f"\n… and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise ScenariosInvalid(f"{source} is not usable:\n" + "\n".join(faults[:_MOST_SHOWN]) + more)
    if not found:
        raise ScenariosInvalid(f'{source} has no scenario. Write one a line: {{"id": "…", "input": …}}')
    return found


def write_scenarios(path: Path, found: Iterable[Scenario]) -> None:
    """Write a JSONL file that only its owner may read (it holds users' requests). Raises `NoTasks` if it exists."""
    try:
        # a lone surrogate becomes its JSON escape, and is read back unchanged
        with open(path, "x", encoding="utf-8", errors="backslashreplace", opener=file_modes.private_opener) as file:
            file.writelines(scenario_line(scenario) + "\n" for scenario in found)
    except FileExistsError:
        raise NoTasks(f"{path} exists already: name another file with --out, or remove it") from None
    except OSError as e:
        raise NoTasks(f"{path} cannot be written: {e.strerror or e}") from e


def scenario_line(scenario: Scenario) -> str:
    """A scenario as its line, without empty fields."""
    fields = {key: value for key in _KEYS if (value := getattr(scenario, key)) is not None}
    if not scenario.adversarial:
        del fields["adversarial"]
    return json.dumps(fields, ensure_ascii=False)


def _scenario(found: FileObject) -> Scenario:
    value = found.value
    if not isinstance(value, dict):
        raise InvalidObject(f"a scenario is a JSON object, not {_kind(value)}")
    if isinstance(value, DuplicateKeys):
        raise InvalidObject(f"the key {value.key!r} appears twice", value.key, nth=2)
    if is_table_row(value):
        id_ = f"task-{found.number}" if value.get("task_id") is None else _id(value["task_id"], "task_id")
        return Scenario(id_, row_prompt(value), rubric=row_rubric(value), ignored=row_ignored(value))
    for key in value:
        if key not in _KEYS:
            raise InvalidObject(f"unknown key {key!r}{_meant(key)}", key)
    if value.get("input") is None:
        raise InvalidObject('"input" is missing')
    return Scenario(
        _id(value.get("id"), "id"),
        value["input"],
        value.get("reference"),
        _rubric(value.get("rubric")),
        _adversarial(value.get("adversarial")),
    )


def _adversarial(value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InvalidObject(f'"adversarial" is {_kind(value)}: it must be true or false', "adversarial")
    return bool(value)


def _rubric(value: Any) -> Any:
    """A scenario's rubric; a list must be one of criteria."""
    if isinstance(value, list):
        try:
            for place, entry in enumerate(value, start=1):
                if (doubled := _doubled(entry)) is not None:
                    raise RubricInvalid(f"the key {doubled!r} appears twice in one criterion", place)
            rubric.parse_criteria(value)
        except RubricInvalid as e:
            raise InvalidObject(f'"rubric": {e}', "rubric", entry=e.place) from e
    return value


def _doubled(value: Any) -> str | None:
    """The first duplicate key in one object of a criterion, at any depth."""
    if isinstance(value, DuplicateKeys):
        return value.key
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((key for key in map(_doubled, inner) if key is not None), None)


def _id(value: object, key: str) -> str:
    if value is None:
        raise InvalidObject(f'"{key}" is missing')
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidObject(f'"{key}" is {_kind(value)}: it must be a text or a whole number', key)
    try:
        return check_external(value, f"the {key}")
    except InvalidId as e:
        raise InvalidObject(str(e), key) from e


def _kind(value: object) -> str:
    names = {
        list: "a list",
        dict: "an object",
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "true or false",
    }
    return names.get(type(value), "null")


def _meant(key: str) -> str:
    near = difflib.get_close_matches(key, _KEYS, 1)
    return f": did you mean {near[0]!r}?" if near else f" (known: {', '.join(_KEYS)})"


def is_table_row(value: Mapping[str, Any]) -> bool:
    """Whether an object is a table's row, and not a scenario."""
    return "input" not in value and ("prompt" in value or any(_CRITERION.fullmatch(key.strip()) for key in value))


def row_prompt(value: Mapping[str, Any]) -> str:
    """The prompt. Raises `InvalidObject`."""
    prompt = value.get("prompt")
    if prompt is None:
        raise InvalidObject('"prompt" is missing')
    if not isinstance(prompt, str):
        raise InvalidObject('"prompt" is not a text', "prompt")
    if not prompt.strip():
        raise InvalidObject('"prompt" is empty', "prompt")
    return prompt


def row_rubric(value: Mapping[str, Any]) -> list[dict[str, str]]:
    """The criteria by number, as a scenario's rubric. Raises `InvalidObject`."""
    found: dict[int, dict[str, str] | None] = {}
    for key, text in value.items():
        match = _CRITERION.fullmatch(key.strip())
        if match is None:
            continue
        number = int(match[1])
        if number in found:
            raise InvalidObject(f"{key!r}: criterion {number} appears twice", key)
        if text is not None and not isinstance(text, str):
            raise InvalidObject(f"{key!r} is not a text", key)
        found[number] = {"id": str(number), "text": text.strip()} if text and text.strip() else None
    listed = [one for number in sorted(found) if (one := found[number]) is not None]
    if not listed:
        near = ", ".join(f"{name!r:.80}" for name in row_ignored(value)[:_MOST_SHOWN])
        raise InvalidObject(f'it has no criterion: write "{_FIRST}": "…"' + (f", not {near}" if near else ""))
    return listed


def row_ignored(value: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that look like criteria, hold something, and are not read."""
    return tuple(key for key, said in value.items() if _looks_like_criterion(key) and said not in (None, "", [], {}))


@lru_cache(maxsize=4096)
def _looks_like_criterion(key: str) -> bool:
    name = key.strip().casefold()
    if _CRITERION.fullmatch(key.strip()) or name in ("prompt", "task_id"):
        return False
    return any(word in name for word in _OF_A_CRITERION) or bool(_meant_criterion(key))


def _meant_criterion(key: str) -> str:
    """The criterion's column that a name was meant to be; empty: none."""
    name = key.strip().casefold()
    if len(name) > _MOST_COMPARED:
        return ""
    number = re.search(r"[0-9]{1,9}", name)
    alike = difflib.SequenceMatcher(None, re.sub(r"[0-9]+", "1", name), _FIRST).ratio()
    return f"rubric - {int(number[0]) if number else 1}. criterion" if alike >= _NEAR else ""
