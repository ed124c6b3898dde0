"""A rank whose passes fail as the test says: the file `RANK_FAULT` holds `KIND NUMBER`, and is read at every pass.

`room 40`: passes of more than 40 tokens do not fit into memory. `kill 3`: the third pass from now on ends the process
by SIGKILL in the middle of it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch

from trainer.batch.packing import Pack
from trainer.policy.model import Policy
from trainer.step import rank_worker

FAULT = "RANK_FAULT"


def require_no_fault(one: Pack, passes: int) -> None:
    """Fail as the file says. `passes`: made since its content changed, this one included."""
    kind, number = read_fault()
    if kind == "room" and len(one) > number:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    if kind == "kill" and passes >= number:
        os.kill(os.getpid(), signal.SIGKILL)


def read_fault() -> tuple[str, int]:
    """The kind and number of the fault; none: `("", 0)`."""
    path = Path(os.environ[FAULT])
    kind, _, number = (path.read_text() if path.exists() else "").partition(" ")
    return kind, int(number or 0)


def main() -> None:
    """Work with passes that may fail."""
    stock, seen, passes = Policy.hidden, ("", 0), 0

    def hidden(policy: Policy, one: Pack) -> torch.Tensor:
        nonlocal seen, passes
        if read_fault() != seen:
            seen, passes = read_fault(), 0
        passes += 1
        require_no_fault(one, passes)
        return stock(policy, one)

    Policy.hidden = hidden  # type: ignore[method-assign, assignment]
    rank_worker.main()


if __name__ == "__main__":
    main()
