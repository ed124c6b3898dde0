"""Write the boards: those for training, for validation, and for the final test.

    python -m examples.twenty48.scenarios FOLDER --seed 7

Owns the files' names and the form of a scenario: ``{"id", "input": {"seed"}}``; the seed determines the board. No two
scenarios of any parts begin with the same board. There are no references: an attempt is judged by replaying it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from examples.twenty48.episode import begin
from examples.twenty48.taught import FIRST_SEED

LEARN, VALIDATE, TEST = 192, 48, 320


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the parts."""

    learn: Path
    validate: Path
    test: Path


def write_scenarios(folder: Path, seed: int, *, validate: int = VALIDATE, test: int = TEST) -> Files:
    """Write the three files, the same for the same seed. Existing files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(folder / "learn.jsonl", folder / "validate.jsonl", folder / "test.jsonl")
    boards = different_boards(seed)
    for path, count in ((files.learn, LEARN), (files.validate, validate), (files.test, test)):
        lines = [json.dumps({"id": f"board-{board}", "input": {"seed": board}}) for board in islice(boards, count)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def different_boards(seed: int) -> Iterator[int]:
    """Yield seeds with different boards, none of which is a seed for making the model."""
    rng = random.Random(seed)
    seen = set()
    while True:
        candidate = rng.randrange(FIRST_SEED)
        board = begin(candidate).board
        if board not in seen:
            seen.add(board)
            yield candidate


def main() -> None:
    """Write the files and say where they are."""
    parser = argparse.ArgumentParser(description="Write the boards of examples/twenty48.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=7, help="other boards")
    given = parser.parse_args()
    files = write_scenarios(given.folder, given.seed)
    print(f"{files.learn}\n{files.validate}\n{files.test}")


if __name__ == "__main__":
    main()
