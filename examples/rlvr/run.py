"""The example as one command: `python -m examples.rlvr.run [--seed 7] [--short] [--out FOLDER] [--config hone.toml]`.

Owns: the programs and files around Hone (the prompts of a seed; a judge, if none is configured), and what the short
form omits. Refuses: the sequence (`examples.running.command`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from examples.rlvr.scripted_judge import NAME as SCRIPTED_JUDGE
from examples.rlvr.tasks import LEARN, TEST, VALIDATION, write
from examples.running.command import Example, ExampleRun, main
from examples.running.judges import judging

FOLDER: Final = Path(__file__).parent
MEASURED: Final = "answers that are, as a whole, what a prompt asks for, by code that reads the prompt alone"
# The short form: steps, and prompts for training, for validation and for the end. Each step has twice as many prompts
# as in hone.toml, and two updates: a step has a high fixed cost, so fewer and larger steps learn as much in less time.
SHORT_STEPS, SHORT_PROMPTS, SHORT_UPDATES = 8, 16, 2
SHORT_COUNTS: Final = (LEARN, 8, 100)


@contextlib.contextmanager
def surroundings(wanted: ExampleRun) -> Iterator[Mapping[str, str]]:
    """Write the prompts of this seed, and run a judge until the block ends."""
    parts = write(wanted.data / "tasks", wanted.seed, SHORT_COUNTS if wanted.short else (LEARN, VALIDATION, TEST))
    short = {
        "HONE_CAMPAIGN__STEPS": str(SHORT_STEPS),
        "HONE_CAMPAIGN__SCENARIOS_PER_STEP": str(SHORT_PROMPTS),
        "HONE_TRAINER__SUBSTEPS": str(SHORT_UPDATES),
        "HONE_CAMPAIGN__VAL_EVERY": str(SHORT_STEPS),
        "HONE_CAMPAIGN__SERVE": "last",  # so few attempts cannot decide which version is best
    }
    config = wanted.config or FOLDER / "hone.toml"
    with judging(config, wanted.data, "examples.rlvr.scripted_judge", SCRIPTED_JUDGE) as judge:
        yield {
            "HONE_CAMPAIGN__SCENARIOS": str(parts.learn),
            "HONE_CAMPAIGN__VAL_SCENARIOS": str(parts.validation),
            "HONE_CAMPAIGN__TEST_SCENARIOS": str(parts.test),
            **judge,
            **(short if wanted.short else {}),
        }


EXAMPLE: Final = Example("rlvr", FOLDER, MEASURED, surroundings)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
