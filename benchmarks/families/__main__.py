"""Measure the families: `python -m benchmarks.families` (`make families`).

    python -m benchmarks.families                    all families, with engines; writes the results and docs/models.md
    python -m benchmarks.families --only Qwen3       one family (repeat it for more); the others keep their figures
    python -m benchmarks.families --trainer          without engines: the trainer's half, in seconds
    python -m benchmarks.families --json             print the results, and write nothing

An engine starts in about 15 seconds on two idle cores, takes 1.5 GB, and one runs at a time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.families import engine_half, results, torchvision_folder, trainer_half
from benchmarks.families.catalog import FAMILIES, Family, find_family, write_model
from benchmarks.families.engine_half import EngineFigures, EngineWay
from benchmarks.families.results import FamilyResult


def measure(family: Family, folder: Path, *, with_engine: bool) -> FamilyResult:
    """Both halves of one family, in a folder of its own; the trainer's half alone without `with_engine`."""
    base, adapters = folder / "model", folder / "adapters"
    adapters.mkdir(parents=True)
    write_model(family, base)
    trained = trainer_half.run_trainer_half(base, adapters)
    if not with_engine or trained.policy is None or trained.probe is None:
        return FamilyResult(trained.figures)
    found = EngineFigures(refusal="no adapter is published")
    if trained.adapter is not None:
        # vLLM serves no quantised weights in float32
        way = EngineWay("bfloat16" if family.quantization else family.dtype, *_way_to_media(family))
        found = engine_half.serve_adapter(base, trained.adapter, trained.probe, folder / "engine.log", way)
    if found.refusal is not None:
        merged = trainer_half.write_merged(trained.policy, base, folder / "merged")
        way = EngineWay(family.dtype, *_way_to_media(family))
        gap = engine_half.serve_merged(merged, trained.probe, folder / "merged.log", way)
        served = {"merged_gap": gap} if isinstance(gap, float) else {"merged_refusal": gap}
        found = replace(found, **served)
    return FamilyResult(trained.figures, found)


def _way_to_media(family: Family) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and environment of an engine: of a model that reads images the text alone is asked for."""
    arguments = ("--language-model-only",) if family.whole else ()
    return arguments, torchvision_folder.engine_environment() if family.imports_torchvision else {}


def main() -> None:
    """Measure, report each family on stderr, and write or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", type=_family, help="a family of the table")
    parser.add_argument("--trainer", action="store_true", help="start no engine")
    parser.add_argument("--json", action="store_true", help="print the results instead of writing them")
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen: list[Family] = given.only or list(FAMILIES)
    found: dict[str, FamilyResult] = {}
    for index, family in enumerate(chosen):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="families-") as folder:
            one = measure(family, Path(folder), with_engine=not given.trainer)
        before = {} if given.json else results.read_results()
        if given.trainer and family.name in before:
            one = replace(one, engine=before[family.name].engine)
        found[family.name] = one
        seconds = time.monotonic() - started
        print(f"{index + 1}/{len(chosen)} {family.name}: {_outcome(one)} ({seconds:.0f} s)", file=sys.stderr)
        if not given.json:  # after each, and beside what is there: a run may be stopped, and another write too
            _write({**before, family.name: one})
    if given.json:
        sys.stdout.write(results.as_json(found))


def _family(name: str) -> Family:
    try:
        return find_family(name)
    except KeyError:
        names = ", ".join(one.name for one in FAMILIES)
        raise argparse.ArgumentTypeError(f"{name!r} is none of the families: {names}") from None


def _write(found: dict[str, FamilyResult]) -> None:
    ordered = {family.name: found[family.name] for family in FAMILIES if family.name in found}
    results.RESULTS.write_text(results.as_json(ordered), "utf-8")
    results.MARKS.write(results.PAGE, results.tables(ordered))


def _outcome(one: FamilyResult) -> str:
    trainer, engine = one.trainer, one.engine
    parts = [trainer.refusal or trainer.rows or ""]
    parts += [trainer.unpublished] if trainer.unpublished else []
    if engine is not None:
        parts.append(engine.refusal or f"served, {engine.gap:.0e} nats")
    if engine is not None and engine.merged_gap is not None:
        parts.append(f"merged and served, {engine.merged_gap:.0e} nats")
    if engine is not None and engine.merged_refusal is not None:
        parts.append(f"merged: {engine.merged_refusal}")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
