"""What a long run has measured so far: one JSON file, written anew after each measurement.

Owns: its shape, and that a killed run goes on with the file of the same run only. Refuses: computing
(`examples.rlvr.long_run.reading`, `examples.rlvr.long_run.verdict`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from examples.rlvr.long_run.phases import Phase

FILE: Final = "points.json"


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FormPoint(_FileModel):
    """A form's held-out prompts at one time. `low`, `high`: Wilson's 95 % interval of the success.

    `entropy`: minus the mean logprob of the sampled tokens, in nats a token. `tokens`: mean length of an answer.
    `cut_off`: share of answers that reached the limit of tokens.
    """

    answers: int
    success: float
    low: float
    high: float
    entropy: float
    tokens: float
    cut_off: float


class Point(_FileModel):
    """One measurement, after `step` steps of the run.

    `drift`: `kl_base`, `kl_parent`, `entropy` (nats a token, over the whole vocabulary) of the newest step with a
    version, on the drift set; empty before the first. `reward`, `own_success`: means over the attempts of the steps
    since the measurement before; None before the first step.
    """

    step: int
    phase: str
    version: str
    forms: Mapping[str, FormPoint]
    drift: Mapping[str, float]
    reward: float | None
    own_success: float | None


class AlarmPoint(_FileModel):
    """A health rule's alarm after `step` steps of the run."""

    step: int
    rule: str
    words: str


class LongRunRecord(BaseModel):
    """The file. `phases`: as planned; `minutes`: of each start of the program; `rehearsal`: trainer.rehearsal.
    `opened`: the opening traffic was asked. `judge_port`: of the scripted judge."""

    model_config = ConfigDict(extra="forbid")

    seed: int
    every: int
    held_out: int
    phases: list[Phase]
    rehearsal: float = 0.0
    opened: bool = False
    judge_port: int | None = None
    minutes: list[float] = []
    points: list[Point] = []
    alarms: list[AlarmPoint] = []

    def is_known(self, step: int) -> bool:
        """Whether there is a measurement after this many steps."""
        return any(one.step == step for one in self.points)

    def add(self, point: Point) -> None:
        """Add a measurement in order of steps."""
        self.points = sorted([*self.points, point], key=lambda one: one.step)


class OtherRun(Exception):
    """The data folder has another run."""


def open_record(folder: Path, wanted: LongRunRecord) -> LongRunRecord:
    """Return the record in a data folder, or `wanted` if there is none.

    Raises:
        OtherRun: the folder's run has another seed, other phases, other measurements or another rehearsal.
    """
    path = folder / FILE
    if not path.exists():
        return wanted
    found = read_record(path)
    for name in ("seed", "every", "held_out", "phases", "rehearsal"):
        if (was := getattr(found, name)) != (now := getattr(wanted, name)):
            raise OtherRun(f"{path} is of a run with {name} {was}, not {now}: give another folder with --out")
    return found


def read_record(path: Path) -> LongRunRecord:
    """Return the record of a file."""
    return LongRunRecord.model_validate_json(path.read_text(encoding="utf-8"))


def write_record(folder: Path, record: LongRunRecord) -> None:
    """Replace the file at once: a kill leaves the old one or the new one."""
    new = folder / f"{FILE}.new"
    new.write_text(json.dumps(record.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    new.replace(folder / FILE)
