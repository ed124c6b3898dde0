"""`hone init`: a first hone.toml, written from what is found on this machine.

Owns: the file, and printing. Refuses: the search and the choice of settings (`proxy.doctor.discovery`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.commands.context import ensure_context
from recorder.base.terminal import echo, write_json

if TYPE_CHECKING:
    from proxy.doctor.discovery import Discovery
    from proxy.doctor.memory_plan import MemoryPlan
    from proxy.settings.toml_writer import SettingLine
    from recorder.models.base_model import ModelProfile


def _name(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    from proxy.settings.sections import MODEL_NAME

    if not re.fullmatch(MODEL_NAME, value):
        raise click.BadParameter(f"{value!r}: a model's name contains only letters, digits and . _ : ~ / -")
    return value


@click.command()
@click.option(
    "--base", help="The base model: a folder or a Hugging Face id [a running engine's, or the newest on this machine]."
)
@click.option(
    "--alias", default="agent", show_default=True, callback=_name, help="The model name that your agent asks for."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_context
def init(click_context: click.Context, base: str | None, alias: str, force: bool) -> None:
    """Write a commented hone.toml for this machine: its running engine, models, GPU and a judge's key.

    The command asks no questions, and writes the value of no key.
    """
    from proxy.doctor.discovery import HEAD, chosen_base, discover, first_settings
    from proxy.doctor.model_settings import unknown_family
    from proxy.settings.loader import FILE_NAME
    from proxy.settings.toml_writer import as_toml

    context = ensure_context(click_context)
    file = context.config or Path(FILE_NAME)
    _refuse_to_replace(file, force)
    discovery = asyncio.run(discover())
    base = _from_anywhere(base)
    own_base = chosen_base(discovery, base)
    model = _model(own_base) if own_base is not None else None
    memory = _memory(own_base, discovery)
    lines = first_settings(discovery, alias, base, model, memory)
    sentence = unknown_family(model) if model is not None else None
    _write(file, as_toml(HEAD, lines))
    written = {".".join(line.path): line.value for line in lines if not line.off}
    if context.json:
        write_json({"file": str(file), "settings": written, "found": discovery.as_json(), "note": sentence})
        return
    echo(f"wrote {file}:")
    for line in lines:
        echo(_setting_line(line))
    if sentence is not None:
        echo(f"Note: {sentence}")
    where = f" --config {context.config}" if context.config else ""
    echo(f"Next: hone doctor{where}, then hone up{where}")


def _from_anywhere(base: str | None) -> str | None:
    """A folder by its absolute path: the file may be elsewhere, and paths in it are relative to it."""
    return str(Path(base).absolute()) if base and Path(base).is_dir() else base


def _model(base: str) -> ModelProfile | None:
    """What is known of a base model. A base that cannot be served or trained is refused before anything is written."""
    from proxy.doctor.model_settings import unserved_family
    from proxy.errors import ConfigError
    from proxy.settings.sections import EngineSettings
    from recorder.errors import BaseInvalid
    from recorder.models.on_disk import read_model

    try:
        model = read_model(base)
    except BaseInvalid as e:
        raise ConfigError(str(e)) from e
    refusal = unserved_family(model, EngineSettings(base=base)) if model is not None else None
    if refusal is not None:
        raise ConfigError(f"{refusal.found} {refusal.todo}")
    return model


def _memory(base: str | None, discovery: Discovery) -> MemoryPlan | None:
    """How engine and trainer share the GPUs; None without GPUs, or where it cannot be computed.

    Raises `ConfigError` for a base that does not fit.
    """
    from proxy.doctor.memory_plan import MemoryPlan, ask_plan
    from proxy.errors import ConfigError

    if base is None or discovery.device != "cuda" or not discovery.gpus:
        return None
    plan = asyncio.run(ask_plan(base, discovery.gpus))
    if not isinstance(plan, MemoryPlan):
        return None  # `hone doctor` says why
    if not plan.fits:
        raise ConfigError(plan.sentence)
    return plan


def _refuse_to_replace(file: Path, force: bool) -> None:
    from proxy.errors import ConfigError

    if file.exists() and not force:
        raise ConfigError(f"{file} exists already. `hone config` shows its settings; --force replaces it.")


def _write(file: Path, text: str) -> None:
    """Write the whole file or nothing."""
    from proxy.errors import ConfigError

    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError as e:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        where = "Change to a folder that you can write to, or name another file with --config."
        raise ConfigError(f"{file.absolute()} cannot be written: {e.strerror or e}. {where}") from e


def _setting_line(line: SettingLine) -> str:
    key = ".".join(line.path)
    if line.off:
        return f"  {key} is not set: {line.found}"
    return f"  {key} = {json.dumps(line.value)}" + (f"   ({line.found})" if line.found else "")
