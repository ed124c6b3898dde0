"""The files beside a made model: ``recipe.json`` and a README with the measured numbers.

Owns: these files. Refuses: judging whether a model is good enough (each maker's own bounds).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from examples.making.training import Recipe

_NOTE = ("recipe.json", "README.md")
_README = """\
# {title}

{does}

A Qwen3 of {parameters:,} parameters, made from scratch by `{command}` (seed {seed}): no weights and no texts come
from elsewhere. `recipe.json` has every number that determines it.

{copy_steps} steps of copying random tokens, then {talk_steps:,} steps of synthetic conversations, with loss on the
assistant's tokens alone:

{mixture}

| measured | |
|---|---|
{rows}
"""


def save(folder: Path, tokenizer: Any, model: Any) -> None:
    """Write a model with its tokenizer, in the model's dtype."""
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def size(folder: Path, model: Any) -> dict[str, int]:
    """Return the bytes of a model's folder, without the note's files, and the number of parameters."""
    return {
        "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.name not in _NOTE),
        "parameters": sum(weights.numel() for weights in model.parameters()),
    }


def note_of(
    recipe: Recipe, mixture: Mapping[str, float], seconds: float, measured: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of ``recipe.json``. `measured`: the maker's figures, `parameters` and `bytes` (`size`)."""
    return {
        "recipe": asdict(recipe),
        "mixture": dict(mixture),
        "training seconds": round(seconds),
        "measured": dict(measured),
    }


def write_note(folder: Path, title: str, does: str, command: str, note: Mapping[str, Any]) -> None:
    """Write ``recipe.json`` and the model's README, both from a note (`note_of`). `does`: a paragraph of Markdown."""
    (folder / "recipe.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    measured = dict(note["measured"])
    text = _README.format(
        title=title,
        does=does,
        command=command,
        parameters=measured.pop("parameters"),
        mixture="\n".join(f"- {share:.0%} {name.replace('_', ' ')}" for name, share in note["mixture"].items()),
        rows="\n".join(f"| {name} | {value} |" for name, value in _rows(measured, note["training seconds"])),
        **note["recipe"],
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _rows(measured: Mapping[str, Any], seconds: float) -> list[tuple[str, Any]]:
    flat = [
        (f"{name}: {inner}", one) if inner else (name, one)
        for name, value in measured.items()
        for inner, one in (value.items() if isinstance(value, Mapping) else [("", value)])
    ]
    return [*flat, ("training, seconds on that machine", seconds)]
