"""The config.json files that Hone ships, by name and Hugging Face id: it knows these models without a network.

`shipped/NAME/source.json` says where the figures are from, the published count of parameters, and what the model's chat
template writes, which is not shipped. Refuses: any weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from recorder.models.parsers import ParserChoice

SHIPPED: Final = Path(__file__).parent / "shipped"
SOURCE_FILE: Final = "source.json"


def shipped_names() -> list[str]:
    """The names of the models whose config.json Hone ships."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{SOURCE_FILE}"))


def shipped_folder(name: str) -> Path | None:
    """The folder with the config.json of a model, by its name (`Qwen3-8B`) or Hugging Face id; None if none is shipped.

    Upper and lower case are the same.
    """
    for one in shipped_names():
        ids = [one, *shipped_source(SHIPPED / one)["hub_ids"]]
        if name.lower() in {known.lower() for known in ids}:
            return SHIPPED / one
    return None


def shipped_source(folder: Path) -> dict[str, Any]:
    """The source.json of a shipped model: `hub_ids`, `source`, `parameters`, `tool_parser`, `reasoning_parser`."""
    found: dict[str, Any] = json.loads((folder / SOURCE_FILE).read_text("utf-8"))
    return found


def shipped_parsers(folder: Path) -> tuple[ParserChoice, ParserChoice] | None:
    """The parsers of tool calls and thinking of a shipped model; None for any other folder."""
    if folder.parent != SHIPPED:
        return None
    source = shipped_source(folder)
    why = "known of this model (its config.json comes with Hone)."
    choices = [
        ParserChoice(source[key], why if source[key] else f"its chat template {lacks}.")
        for key, lacks in (("tool_parser", "writes no tool calls"), ("reasoning_parser", "marks no thinking"))
    ]
    return choices[0], choices[1]
