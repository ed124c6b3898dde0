"""Write the prompts with their criteria as task files (docs/rlvr.md): one JSON object a line.

    python -m examples.rlvr.tasks FOLDER [--seed 7] [--learn 72] [--validation 24] [--test 100]

Owns: the files' names and format, and which prompts are for campaigns: one in four, by a checksum of its words. The
tiny model was made with the others. No prompt is in two parts. Refuses: answers.
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
    """The paths of the parts: for training, for validation, and for the end."""

    learn: Path
    validation: Path
    test: Path


def files(folder: Path = FOLDER) -> Files:
    """Return the parts' files in a folder."""
    return Files(folder / "learn.jsonl", folder / "validation.jsonl", folder / "test.jsonl")


def is_campaigns(prompt: str) -> bool:
    """Whether a prompt is for campaigns; the others are for making the model."""
    return zlib.crc32(prompt.encode()) % 4 == 0


def forms(seed: int) -> Iterator[Form]:
    """Yield the forms of a campaign's prompts, no prompt twice, the same for the same seed."""
    rng, seen = random.Random(seed), set[str]()
    while True:
        form = draw(rng)
        prompt = form.prompt()
        if is_campaigns(prompt) and prompt not in seen:
            seen.add(prompt)
            yield form


def task(number: int, form: Form) -> dict[str, str]:
    """Return a prompt and its criteria as a line of a task file."""
    criteria = {f"rubric - {place}. criterion": text for place, text in enumerate(form.criteria(), start=1)}
    return {"task_id": f"{type(form).__name__.lower()}-{number}", "prompt": form.prompt(), **criteria}


def write(folder: Path, seed: int = SEED, counts: Sequence[int] = (LEARN, VALIDATION, TEST)) -> Files:
    """Write the three parts, the same for the same seed and counts. Existing files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = (task(number, form) for number, form in enumerate(forms(seed), start=1))
    found = files(folder)
    for path, count in zip((found.learn, found.validation, found.test), counts, strict=True):
        _write(path, islice(drawn, count))
    return found


def _write(path: Path, tasks: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in tasks), encoding="utf-8")


def main() -> None:
    """Write the parts and print their paths."""
    parser = argparse.ArgumentParser(description="Write prompts with their criteria.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed: another one gives other prompts ({SEED})")
    parser.add_argument("--learn", type=int, default=LEARN, help=f"number of prompts for training ({LEARN})")
    parser.add_argument(
        "--validation", type=int, default=VALIDATION, help=f"number of prompts for validation ({VALIDATION})"
    )
    parser.add_argument("--test", type=int, default=TEST, help=f"number of prompts for the end ({TEST})")
    given = parser.parse_args()
    found = write(given.folder, given.seed, (given.learn, given.validation, given.test))
    print(f"{found.learn}\n{found.validation}\n{found.test}")


if __name__ == "__main__":
    main()
