"""A learner's examiner in a process of its own, to be killed: DATA, the user's folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from recorder.registry.aliases import get_alias
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.trainer.ring import ALIAS, PROJECT, RecordedProgress, held_to_scenarios
from trainer.runtime.examiner import Examiner


async def main(data: Path, user: Path) -> None:
    """Examine until killed."""
    everything = held_to_scenarios(data, user)
    store = await open_store(data, everything.recorder, migrate=False, project=PROJECT)
    await Examiner(store, await get_alias(Project(store, PROJECT), ALIAS), everything, RecordedProgress()).run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
