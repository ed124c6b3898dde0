"""Scenario files: JSONL in, checked scenarios out, and the order in which a campaign draws them.

Owns: the form of a scenario (`{"id", "input", "reference"?, "rubric"?}` a line), errors that name the line, writing a
file that can be read, drawing.
Refuses: the store, and any meaning of input, reference and rubric: the agent and the judge know that.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from recorder import private
from recorder.errors import InvalidId
from recorder.ids import check_external
from trainer.errors import NoTasks, ScenariosInvalid

_KEYS = ("id", "input", "reference", "rubric")
_MOST_SHOWN = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One task to attempt."""

    id: str
    input: Any
    reference: Any = None
    rubric: Any = None


def read(path: Path) -> list[Scenario]:
    """Read a JSONL file. Raises `ScenariosInvalid`, which names the file and every line at fault (the first ten)."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise ScenariosInvalid(f"the scenario file {path} cannot be read: {e.strerror or e}") from e
    return parse(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), str(path))


def parse(lines: Iterable[bytes], source: str) -> list[Scenario]:
    """Scenarios of the lines that are not blank, in order. Raises `ScenariosInvalid`."""
    found: list[Scenario] = []
    faults: list[str] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            scenario = _scenario(line)
        except ValueError as e:
            faults.append(f"line {number}: {e}")
            continue
        if scenario.id in first_line:
            faults.append(f"line {number}: the id {scenario.id!r} is taken by line {first_line[scenario.id]}")
        first_line.setdefault(scenario.id, number)
        found.append(scenario)
    if faults:
        more = f"\n… and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise ScenariosInvalid(f"{source} is not usable:\n" + "\n".join(faults[:_MOST_SHOWN]) + more)
    if not found:
        raise ScenariosInvalid(f'{source} has no scenario. Write one a line: {{"id": "…", "input": …}}')
    return found


def write(path: Path, found: Iterable[Scenario]) -> None:
    """Write a JSONL file that only its owner may read: it has what users asked. Raises `NoTasks` where it is there."""
    try:
        # a lone surrogate becomes its JSON escape: what was recorded is read back as it was
        with open(path, "x", encoding="utf-8", errors="backslashreplace", opener=private.opener) as file:
            file.writelines(line(scenario) + "\n" for scenario in found)
    except FileExistsError:
        raise NoTasks(f"{path} is there already: name another file with --out, or remove it") from None
    except OSError as e:
        raise NoTasks(f"{path} cannot be written: {e.strerror or e}") from e


def line(scenario: Scenario) -> str:
    """A scenario as its line, without what it has not."""
    return json.dumps({key: value for key, value in asdict(scenario).items() if value is not None}, ensure_ascii=False)


def _scenario(line: bytes) -> Scenario:
    try:
        value = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as e:
        raise ValueError(f"not UTF-8 (byte {e.start})") from e
    except json.JSONDecodeError as e:
        raise ValueError(f"not JSON: {e.msg} (column {e.colno})") from e
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    if not isinstance(value, dict):
        raise ValueError(f"a scenario is a JSON object, not {_kind(value)}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}{_meant(key)}")
    if value.get("input") is None:
        raise ValueError('"input" is missing')
    return Scenario(_id(value.get("id")), value["input"], value.get("reference"), value.get("rubric"))


def _id(value: object) -> str:
    if value is None:
        raise ValueError('"id" is missing')
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f'"id" is {_kind(value)}: it must be a text or a whole number')
    try:
        return check_external(value, "the id")
    except InvalidId as e:
        raise ValueError(str(e)) from e


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


def _meant(key: str) -> str:
    near = difflib.get_close_matches(key, _KEYS, 1)
    return f": did you mean {near[0]!r}?" if near else f" (known: {', '.join(_KEYS)})"


def draw(scenarios: Sequence[T], per_step: int, step: int, seed: int) -> list[T]:
    """The scenarios of a step (counted from 1), all different.

    Each pass over the list is shuffled anew and cut into whole steps; what is left at its end waits for another pass.
    """
    size = min(per_step, len(scenarios))
    steps_per_pass = len(scenarios) // size
    number, position = divmod(step - 1, steps_per_pass)
    order = list(range(len(scenarios)))
    random.Random(f"{seed}:{number}").shuffle(order)
    return [scenarios[i] for i in order[position * size : (position + 1) * size]]
