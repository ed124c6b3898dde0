"""The list of checks, in the order in which they are told.

Owns: what is looked at before anything starts, and what once an engine should be there. Refuses: any single check.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from proxy.doctor import here
from proxy.doctor.engines import engines
from proxy.doctor.environment import CHECK, Needs, look
from proxy.doctor.gpus import gpu_memory, gpus
from proxy.doctor.stages import says
from proxy.doctor.stored import bases_on_disk
from proxy.engine.command import KEY_FILE, detect_device, engine_urls
from proxy.engine.note import running_engine
from proxy.settings.hone import HoneSettings
from recorder.findings import Finding, Verdict


def takes_engine(settings: HoneSettings) -> bool:
    """Whether `hone engine` runs for this data folder: it is used, wherever it listens, and stays when we end."""
    engine = settings.engine
    there = running_engine(settings.data)
    if engine.urls or there is None or there.base != engine.base:
        return False
    engine.host, engine.port = there.host, there.port
    return True


def starts_engine(settings: HoneSettings) -> bool:
    """Whether `hone up` starts an engine. With models of other providers alone none is needed."""
    engine = settings.engine
    wanted = not engine.urls and (engine.base is not None or not settings.proxy.models)
    return wanted and not takes_engine(settings)


def hone_argv(command: str, settings: HoneSettings, config: Path | None) -> list[str]:
    """The command line of another command of this Hone on the same data folder and settings file."""
    # -P: no module of the working directory
    argv = [sys.executable, "-P", "-m", "proxy.cli", command, "--data", str(settings.data)]
    return [*argv, "--config", str(config)] if config is not None else argv


def before(settings: HoneSettings, run: Mapping[str, object] | None, *, starting: bool) -> list[Finding]:
    """What can be told before anything runs. `run`: run.json of a Hone that runs on the folder."""
    return [
        here.other_hone(settings.data, run, starting=starting),
        here.data_folder(settings.data),
        *here.ports(settings, running=run is not None, starts_engine=starts_engine(settings)),
        here.names(settings),
        here.base(settings),
        *here.precision(settings, detect_device(settings.engine)),
        *here.trackers(settings),
        *([here.trainer(settings)] if starting else []),  # `of_environments` tells more, and takes longer
    ]


def _needs(settings: HoneSettings) -> dict[str, Needs]:
    """What each Python that this machine runs is there for."""
    ours = sys.executable
    engines = str(settings.engine.python or ours)
    served = {engines: Needs(engine=True)} if starts_engine(settings) else {}
    postgres = (settings.recorder.url or "").startswith("postgresql")
    training = here.can_train(settings)
    return served | {ours: Needs(engine=ours in served, training=training, postgres=postgres)}


async def of_environments(settings: HoneSettings) -> list[Finding]:
    """Whether what serves and trains here is installed and fits together."""
    wanted = {python: needs for python, needs in _needs(settings).items() if needs != Needs()}
    if not wanted:
        return [Finding(CHECK, Verdict.SKIPPED, "no model is served or trained by this machine.")]
    found = await asyncio.gather(*(look(python, needs) for python, needs in wanted.items()))
    return list(chain.from_iterable(found))


async def of_engines(settings: HoneSettings) -> list[Finding]:
    """What engines say."""
    return await engines(engine_urls(settings.engine), _key(settings), settings)


def _key(settings: HoneSettings) -> str | None:
    """The key as it is; unlike `engine_key` this makes none."""
    if settings.engine.api_key is not None:
        return settings.engine.api_key.get_secret_value()
    path = settings.data / KEY_FILE
    return path.read_text().strip() if os.access(path, os.R_OK) else None


async def of_judge(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    """What the judge says. `env`: variables that stand for this command's flags."""
    return await says("judge", [*hone_argv("judge", settings, config), "--check", "--json"], env)


async def of_learner(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    """What the learner says of the scenarios that versions are held to, where any are."""
    if all(alias.gate.scenarios is None for alias in settings.aliases.values()):
        return []
    return await says("learner", [*hone_argv("learn", settings, config), "--check", "--json"], env)


async def everything(
    settings: HoneSettings, run: Mapping[str, object] | None, config: Path | None, env: Mapping[str, str]
) -> Sequence[Finding]:
    """The whole list, as `hone doctor` tells it. An engine that `hone up` will start is not asked before it runs."""
    local = before(settings, run, starting=False)
    asked = of_engines(settings) if run is not None or not starts_engine(settings) else _later(settings)
    stored = bases_on_disk(settings)
    stages = (of_judge(settings, config, env), of_learner(settings, config, env))
    later = await asyncio.gather(stored, of_environments(settings), _of_gpus(settings), asked, *stages)
    return [*local, *chain.from_iterable(later)]


async def _of_gpus(settings: HoneSettings) -> list[Finding]:
    return [gpu_memory(settings, await asyncio.to_thread(gpus))]


async def _later(settings: HoneSettings) -> list[Finding]:
    return [Finding("engine", Verdict.SKIPPED, f"`hone up` will start {settings.engine.base} and look then.")]
