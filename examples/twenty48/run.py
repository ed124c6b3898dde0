"""Run the example: a campaign on boards of 2048, rewarded by a function.

    python -m examples.twenty48.run [--seed 7] [--short] [--out FOLDER] [--config hone.toml]

Owns the files of boards; this example needs no program around Hone. Refuses the sequence (examples/running/).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from examples.running.command import Example, ExampleRun, main
from examples.twenty48.scenarios import write_scenarios

# The short form: steps, and boards for validation and for the end.
SHORT_STEPS, SHORT_VALIDATE, SHORT_TEST = 6, 8, 100


@contextmanager
def boards(wanted: ExampleRun) -> Iterator[Mapping[str, str]]:
    """Write the boards of this seed; yield the variables that name them to Hone."""
    folder = wanted.data / "boards"
    if wanted.short:
        files = write_scenarios(folder, wanted.seed, validate=SHORT_VALIDATE, test=SHORT_TEST)
    else:
        files = write_scenarios(folder, wanted.seed)
    short = {
        "HONE_CAMPAIGN__STEPS": str(SHORT_STEPS),
        "HONE_CAMPAIGN__VAL_EVERY": str(SHORT_STEPS),
        "HONE_CAMPAIGN__SERVE": "last",  # so few attempts cannot decide which version is best
    }
    yield {
        "HONE_CAMPAIGN__SCENARIOS": str(files.learn),
        "HONE_CAMPAIGN__VAL_SCENARIOS": str(files.validate),
        "HONE_CAMPAIGN__TEST_SCENARIOS": str(files.test),
        **(short if wanted.short else {}),
    }


TWENTY48: Final = Example(
    name="twenty48",
    folder=Path(__file__).parent,
    measured="a tile of 32 within ten turns, on boards that were never learned from; moves replayed by the game",
    surroundings=boards,
    judged=False,
)

if __name__ == "__main__":
    sys.exit(main(TWENTY48))
