"""The list of checks in the order of the output: some before anything starts, some once an engine should be up.

The judge and the learner check themselves in child processes (`hone judge --check`, `hone learn --check`), since the
proxy imports neither. Refuses: any single check (`machine`, `engines`, `environment`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from proxy.doctor import machine
from proxy.doctor.engines import bases_on_disk, check_engines
from proxy.doctor.environment import CHECK, PARSER_CHECK, EnvironmentNeeds, probe_python
from proxy.doctor.logprobs import ask_fixed_text, check_logprobs
from proxy.doctor.machine import check_gpu_memory, list_gpus, shares_gpus
from proxy.doctor.mcp_servers import check_mcp_servers
from proxy.doctor.memory_plan import ask_plan
from proxy.doctor.model_settings import check_model
from proxy.doctor.training_processes import check_processes
from proxy.engine.command import KEY_FILE, engine_urls, running_engine
from proxy.engine.device import detect_device
from proxy.engine.parsers import REASONING_PARSER, TOOL_PARSER, engine_parsers
from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding, FindingLevel, parse_finding

TRAINER_CHECK = "trainer logprobs"
TARGET_CHECK = "trainer target"
LIMIT_S = 90.0  # importing a user's functions may take a minute (judge.function_start_s)


async def run_check(stage: str, command: Sequence[str], env: Mapping[str, str], given: bytes = b"") -> list[Finding]:
    """The findings that a check command (`hone judge --check --json`, `hone learn --check --json`) prints.

    `given`: its standard input.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **env}
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(given)
    except TimeoutError:
        return [Finding(stage, FindingLevel.WRONG, f"the checks took longer than {LIMIT_S:.0f} s.")]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return [parse_finding(one) for one in json.loads(out)]
    except (ValueError, KeyError, TypeError):
        output = (err or out).decode(errors="replace").strip().splitlines()
        return [Finding(stage, FindingLevel.WRONG, f"its checks failed: {output[-1] if output else 'no output'}")]


def takes_engine(settings: HoneSettings) -> bool:
    """Whether `hone engine` runs for this data folder. Then `settings` get its address."""
    engine = settings.engine
    there = running_engine(settings.data)
    if engine.urls or there is None or there.base != engine.base:
        return False
    engine.host, engine.port = there.host, there.port
    return True


def starts_engine(settings: HoneSettings) -> bool:
    """Whether `hone up` starts an engine. With models of other providers only, none is needed."""
    engine = settings.engine
    needs_engine = not engine.urls and (engine.base is not None or not settings.proxy.models)
    return needs_engine and not takes_engine(settings)


def hone_argv(command: str, settings: HoneSettings, config: Path | None) -> list[str]:
    """The command line of another `hone` command with the same data folder and settings file."""
    # -P: imports nothing from the working directory
    argv = [sys.executable, "-P", "-m", "proxy.cli", command, "--data", str(settings.data)]
    return [*argv, "--config", str(config)] if config is not None else argv


def check_before_start(settings: HoneSettings, run: Mapping[str, object] | None, *, starting: bool) -> list[Finding]:
    """The checks that need nothing running. `run`: run.json of a `hone up` on the same data folder."""
    return [
        machine.check_other_hone(settings.data, run, starting=starting),
        machine.check_data_folder(settings.data),
        *machine.check_ports(settings, running=run is not None, starts_engine=starts_engine(settings)),
        machine.check_names(settings),
        machine.check_base(settings),
        *check_model(settings),
        *machine.check_precision(settings, detect_device(settings.engine)),
        *machine.check_trackers(settings),
        *([machine.check_trainer(settings)] if starting else []),  # faster than `check_environments`, with less detail
    ]


def _needs(settings: HoneSettings) -> dict[str, EnvironmentNeeds]:
    """What each Python on this machine has to do, by its path."""
    ours = sys.executable
    engines = str(settings.engine.python or ours)
    starts = starts_engine(settings)
    served = {engines: EnvironmentNeeds(engine=True, parsers=parsers_to_find(settings))} if starts else {}
    postgres = (settings.recorder.url or "").startswith("postgresql")
    training = machine.check_weights(settings)
    own = EnvironmentNeeds(engine=ours in served, training=training, postgres=postgres)
    return served | {ours: replace(own, parsers=served[ours].parsers if ours in served else ())}


def parsers_to_find(settings: HoneSettings) -> tuple[tuple[str, str], ...]:
    """The parsers to look up in the engine's Python. A plug-in of the engine may add any name."""
    engine = settings.engine
    tools, thinking = engine_parsers(engine).names
    named = {
        TOOL_PARSER: (tools, "--tool-parser-plugin"),
        REASONING_PARSER: (thinking, "--reasoning-parser-plugin"),
    }
    return tuple(
        (setting, name)
        for setting, (name, plugin) in named.items()
        if name and not any(argument.partition("=")[0] == plugin for argument in engine.args)
    )


def check_remote_parsers(settings: HoneSettings) -> list[Finding]:
    """A note that the parsers of an engine by URL cannot be looked up; none if Hone starts the engine."""
    if not settings.engine.urls or not settings.declared_aliases():
        return []
    text = "the engines in engine.urls have their own parsers, which Hone cannot look up."
    todo = "For tool calls, start them with --enable-auto-tool-choice and --tool-call-parser (docs/your-vllm.md)."
    return [Finding(PARSER_CHECK, FindingLevel.NOTE, text, todo)]


async def check_environments(settings: HoneSettings) -> list[Finding]:
    """Whether the packages that serve and train on this machine are installed and fit together."""
    needs_by_python = {python: needs for python, needs in _needs(settings).items() if needs != EnvironmentNeeds()}
    if not needs_by_python:
        return [Finding(CHECK, FindingLevel.SKIPPED, "this machine serves and trains no model.")]
    findings = await asyncio.gather(*(probe_python(python, needs) for python, needs in needs_by_python.items()))
    return list(chain.from_iterable(findings))


async def check_all_engines(settings: HoneSettings) -> list[Finding]:
    """The checks of all engines."""
    return await check_engines(engine_urls(settings.engine), known_key(settings), settings)


def known_key(settings: HoneSettings) -> str | None:
    """The engine's key; None if there is none. Unlike `engine_key`, this creates none."""
    if settings.engine.api_key is not None:
        return settings.engine.api_key.get_secret_value()
    path = settings.data / KEY_FILE
    return path.read_text().strip() if os.access(path, os.R_OK) else None


async def check_judge(
    settings: HoneSettings, config: Path | None, env: Mapping[str, str], *, ask: bool = False
) -> list[Finding]:
    """The judge's own checks. `env`: this command's flags as variables; `ask`: with one request to each model."""
    argv = [*hone_argv("judge", settings, config), "--check", "--json", *(["--ask"] if ask else [])]
    return await run_check("judge", argv, env)


async def check_learner(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    """The learner's checks of gate scenarios; none if no alias has any."""
    if all(alias.gate.scenarios is None for alias in settings.aliases.values()):
        return []
    return await run_check("learner", [*hone_argv("learn", settings, config), "--check", "--json"], env)


async def check_trainer_logprobs(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    """Whether the engines compute the trainer's logprobs; none where no trainer is installed or no engine answers."""
    if machine.check_trainer(settings).verdict is not FindingLevel.FINE:
        return []
    if settings.engine.share != "split" and detect_device(settings.engine) == "cuda":
        text = "the trainer's base does not fit on the GPU beside an engine that is awake: each step measures the gap."
        return [Finding(TRAINER_CHECK, FindingLevel.SKIPPED, text)]
    answers = await ask_fixed_text(engine_urls(settings.engine), known_key(settings), settings)
    if not answers:
        return []
    argv = [*hone_argv("learn", settings, config), "--engine-logprobs", "--json"]
    return await run_check(TRAINER_CHECK, argv, env, json.dumps(answers).encode())


async def check_target(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    """Which share of the base's weights trainer.target adapts; none where no trainer is installed."""
    if machine.check_trainer(settings).verdict is not FindingLevel.FINE:
        return []
    return await run_check(TARGET_CHECK, [*hone_argv("learn", settings, config), "--explain-target", "--json"], env)


async def check_all(
    settings: HoneSettings,
    run: Mapping[str, object] | None,
    config: Path | None,
    env: Mapping[str, str],
    *,
    offline: bool = False,
) -> Sequence[Finding]:
    """All checks of `hone doctor`. An engine that `hone up` will start is skipped until it runs.

    `offline`: the judge's models and the MCP servers are not called.
    """
    local = check_before_start(settings, run, starting=False)
    engine_checks = (
        _of_engines(settings, config, env) if run is not None or not starts_engine(settings) else _later(settings)
    )
    stored = bases_on_disk(settings)
    stages = (
        check_judge(settings, config, env, ask=not offline),
        check_learner(settings, config, env),
        check_target(settings, config, env),
        check_mcp_servers(settings.mcp, offline=offline),
    )
    later = await asyncio.gather(
        stored, check_environments(settings), check_memory(settings, config, env), engine_checks, *stages
    )
    return [*local, *check_remote_parsers(settings), *chain.from_iterable(later)]


async def check_memory(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    """Whether engine and trainer fit on this machine's GPUs; it takes seconds where they share some."""
    there = await asyncio.to_thread(list_gpus)
    several = check_processes(settings, there)
    if (reason := shares_gpus(settings, there)) is not None:
        return [*several, reason]
    if machine.check_trainer(settings).verdict is not FindingLevel.FINE:
        return several  # `check_environments` reports it
    base = settings.trainer.base or str(settings.engine.base)
    return [*several, check_gpu_memory(settings, there, await ask_plan(base, there, config=config, env=env))]


async def _of_engines(settings: HoneSettings, config: Path | None, env: Mapping[str, str]) -> list[Finding]:
    findings = await check_all_engines(settings)
    logprobs = await check_logprobs(engine_urls(settings.engine), known_key(settings), settings)
    return [*findings, *logprobs, *await check_trainer_logprobs(settings, config, env)]


async def _later(settings: HoneSettings) -> list[Finding]:
    return [Finding("engine", FindingLevel.SKIPPED, f"`hone up` starts {settings.engine.base} and checks it then.")]
