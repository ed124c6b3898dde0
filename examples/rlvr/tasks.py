"""Writes the prompts with their criteria, as tables of prompts (docs/rlvr.md): one JSON object a line.

    python -m examples.rlvr.tasks FOLDER [--seed 7] [--learn 72] [--validation 24] [--test 100]

Owns: the files' names and form, and which prompts are the campaign's: every fourth that can be drawn, by a checksum of
its words. The tiny model was made with the other three. No prompt is in two parts. Refuses: answers.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from examples.rlvr.forms import Form, draw

SEED: Final = 7
LEARN, VALIDATION, TEST = 72, 24, 100
FOLDER: Final = Path(__file__).parent / "tasks"


@dataclass(frozen=True, slots=True)
class Files:
    """Where the parts lie: to learn from, to validate with, and for the end."""

    learn: Path
    validation: Path
    test: Path


def files(folder: Path = FOLDER) -> Files:
    """The parts' files in a folder."""
    return Files(folder / "learn.jsonl", folder / "validation.jsonl", folder / "test.jsonl")


def is_campaigns(prompt: str) -> bool:
    """Whether a prompt is for campaigns (else for the making of the model)."""
    return zlib.crc32(prompt.encode()) % 4 == 0


def forms(seed: int) -> Iterator[Form]:
    """What a campaign's prompts ask for, no prompt twice; the same for the same seed."""
    rng, seen = random.Random(seed), set[str]()
    while True:
        form = draw(rng)
        prompt = form.prompt()
        if is_campaigns(prompt) and prompt not in seen:
            seen.add(prompt)
            yield form


def task(number: int, form: Form) -> dict[str, str]:
    """A prompt and its criteria as a table's row."""
    criteria = {f"rubric - {place}. criterion": text for place, text in enumerate(form.criteria(), start=1)}
    return {"task_id": f"{type(form).__name__.lower()}-{number}", "prompt": form.prompt(), **criteria}


def write(folder: Path, seed: int = SEED, counts: Sequence[int] = (LEARN, VALIDATION, TEST)) -> Files:
    """Write the three parts, replacing what is there; the same for the same seed and counts."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = (task(number, form) for number, form in enumerate(forms(seed), start=1))
    found = files(folder)
    for path, count in zip((found.learn, found.validation, found.test), counts, strict=True):
        _write(path, islice(drawn, count))
    return found


def _write(path: Path, tasks: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in tasks), encoding="utf-8")


def main() -> None:
    """Write the parts and say where they are."""
    parser = argparse.ArgumentParser(description="Write prompts with their criteria.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED, help=f"other prompts ({SEED})")
    parser.add_argument("--learn", type=int, default=LEARN, help=f"how many to learn from ({LEARN})")
    parser.add_argument("--validation", type=int, default=VALIDATION, help=f"how many to validate with ({VALIDATION})")
    parser.add_argument("--test", type=int, default=TEST, help=f"how many for the end ({TEST})")
    given = parser.parse_args()
    found = write(given.folder, given.seed, (given.learn, given.validation, given.test))
    print(f"{found.learn}\n{found.validation}\n{found.test}")


if __name__ == "__main__":
    main()
