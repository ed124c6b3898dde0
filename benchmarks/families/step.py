"""One real step of a family, for an engine of another environment: `python -m benchmarks.families.step NAME FOLDER`.

Writes the model into FOLDER/model and the version into FOLDER/adapters, and prints the version's folder, whose
probe.json holds the trainer's logprobs. Refuses: serving it (`benchmarks.families.engine_half`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from benchmarks.families import trainer_half
from benchmarks.families.catalog import find_family, write_model


def main(name: str, folder: Path) -> int:
    """Make the step. Return the exit status: 1 if no version was published, with the reason."""
    torch.set_num_threads(1)
    base, adapters = folder / "model", folder / "adapters"
    adapters.mkdir(parents=True)
    write_model(find_family(name), base)
    trained = trainer_half.run_trainer_half(base, adapters)
    if trained.adapter is None:
        print(trained.figures.refusal or trained.figures.unpublished, file=sys.stderr)
        return 1
    print(trained.adapter)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
