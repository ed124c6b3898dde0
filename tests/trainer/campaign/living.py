"""A campaign's program in a process of its own, forked from one that has loaded everything: to be killed at any moment.

Owns: starting it, and ending it by SIGKILL: from outside, or from within at a named point of the program. Torch and the
trainer are the real ones, on the tests' tiny base, or the ring's scripted one; what it talks to is
`tests.trainer.ring`.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.settings import RecorderSettings
from tests.trainer.plain_settings import PLAIN
from tests.trainer.ring import RecordedProgress, Ring, run_campaign
from trainer.runtime import services
from trainer.settings import TrainerSettings

_FORKS: Final = multiprocessing.get_context("forkserver")
_LOADED: Final = ["pytest", "tests.trainer.campaign.living", "trainer.step.alias_trainer"]
_LOOKS_S: Final = 0.001  # how often somebody looks whether it is time


def trainer_settings(base: Path) -> TrainerSettings:
    """Of a trainer that learns a little from groups that are tiny."""
    given: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "rank": 4,
        "alpha": 8.0,
        "lr": 1e-3,
        "token_budget": 256,
    }
    return TrainerSettings(base=str(base), min_groups=1, **PLAIN, **given)


@dataclass(frozen=True, slots=True)
class KillPoint:
    """A coroutine function of the program, by module and name, at whose `call`th call it is killed: before it or after.

    `of`: only calls that have this among their arguments count.
    """

    module: str
    name: str  # Class.method, or a function
    call: int = 1
    after: bool = False
    of: str | None = None

    def arm(self) -> None:
        """Kill this process there."""
        holder: Any = importlib.import_module(self.module)
        *outer, name = self.name.split(".")
        for one in outer:
            holder = getattr(holder, one)
        original, left = getattr(holder, name), [self.call]

        async def deadly(*args: Any, **given: Any) -> Any:
            if self.of is None or self.of in (*args, *given.values()):
                left[0] -= 1
            if left[0] == 0 and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = await original(*args, **given)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(holder, name, deadly)


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the program. `began`: unix seconds."""

    process: Any  # a ForkServerProcess, which typeshed has only where the platform has it
    began: float

    @classmethod
    async def of(
        cls, ring: Ring, settings: Mapping[str, Any], base: Path | None, dies_at: KillPoint | None = None
    ) -> Life:
        """Begin to run a campaign. `base` None: with the scripted trainer."""
        _FORKS.set_forkserver_preload(_LOADED)
        given = (ring.data, ring.url, ring.recording, dict(settings), base, dies_at)
        process = _FORKS.Process(target=_live, args=given)
        await asyncio.to_thread(process.start)  # the first one waits until everything is loaded
        return cls(process, time.time())

    async def lasts(self, seconds: float, unless: Callable[[], bool] | None = None) -> None:
        """Wait until it is so old, has come to its end, or what must not be is."""
        while self.process.is_alive() and time.time() < self.began + seconds and not (unless and unless()):
            await asyncio.sleep(_LOOKS_S)

    async def killed(self) -> bool:
        """Kill it, and wait until it is gone; False: it had come to its end, which was no failure."""
        self.process.kill()
        await asyncio.to_thread(self.process.join)
        assert self.process.exitcode in (0, -signal.SIGKILL), "the campaign failed: its words are above"
        return bool(self.process.exitcode)


def _live(
    data: Path,
    url: str,
    recording: RecorderSettings,
    settings: dict[str, Any],
    base: Path | None,
    dies_at: KillPoint | None,
) -> None:
    services.HEALTH_TIMEOUT_S = 60.0  # the test answers, which shares its cores with much else
    if dies_at is not None:
        dies_at.arm()
    trainer = trainer_settings(base) if base is not None else None
    asyncio.run(run_campaign(data, url, settings, RecordedProgress(), recording=recording, trainer=trainer))
