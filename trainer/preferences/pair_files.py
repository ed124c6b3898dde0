"""Pairs from files: TRL's forms of a preference data set, one JSON object a line, or parquet with the same columns.

Owns: the forms, and which messages of a row are the prompt. Refuses: reading the file (`trainer.demonstrations.
row_files`), what a message is (`trainer.demonstrations.conversations`), and rows that do not fit
(`trainer.preferences.pairs`).

`{"prompt": ..., "chosen": ..., "rejected": ...}`: each is a text, or a list of messages. Without a prompt, `chosen` and
`rejected` are whole conversations, and the messages with which both begin are the prompt. The same holds for a prompt
that is a text beside whole conversations, as some data sets have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.media import has_media
from trainer.demonstrations.conversations import (
    Conversation,
    plain_messages,
    read_messages,
    read_part,
    read_tools,
    refuse_others,
    row_id,
)
from trainer.demonstrations.row_files import read_rows
from trainer.tasks.json_objects import InvalidObject

SIDES: Final = ("chosen", "rejected")
_KNOWN: Final = {"prompt", *SIDES, "tools"}
# Of data sets in this form: they say nothing about which answer is better.
_IGNORED: Final = {"parallel_tool_calls", "score_chosen", "score_rejected", "prompt_id", "messages"}


@dataclass(frozen=True, slots=True)
class PairRow:
    """One row of a file. `source_id`: by the content of the row, so that the same row has it in every file."""

    source_id: str
    name: str  # FILE:LINE
    chosen: Conversation
    rejected: Conversation


def read_pairs(file: Path) -> list[PairRow]:
    """Read a file. Raises `DemonstrationsInvalid`, with line and column of each fault, if any row is wrong or none is
    there.
    """
    return read_rows(file, _pair, "pair")


def _pair(value: Mapping[str, Any], name: str) -> PairRow:
    given = {key: one for key, one in value.items() if key not in _IGNORED and one is not None}
    for key in SIDES:
        if key not in given:
            raise InvalidObject(f"it has no {key}: a row has chosen and rejected", next(iter(given), None))
    refuse_others(given, _KNOWN)
    prompt, sides = _parts(given)
    tools = read_tools(given.get("tools"))
    whole = [[*prompt, *side] for side in sides]
    id_ = row_id(*map(plain_messages, whole), len(prompt), tools)
    chosen, rejected = (
        _side(f"{id_}:{key}", name, messages, len(prompt), tools) for key, messages in zip(SIDES, whole, strict=True)
    )
    return PairRow(id_, name, chosen, rejected)


def _parts(given: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """The prompt, and what follows it on each side."""
    prompt = given.get("prompt")
    sides = [read_part(given, key, "assistant") for key in SIDES]
    if isinstance(prompt, list) or (prompt is not None and not all(map(_is_whole, sides))):
        return read_part(given, "prompt", "user"), sides
    for key in SIDES:
        if isinstance(given[key], str):
            raise InvalidObject(f"{key} is a text, so the row needs a prompt", key)
    if prompt is not None and not isinstance(prompt, str):
        read_messages(prompt, "prompt")  # raises
    shared = _shared_messages(*map(plain_messages, sides))
    return sides[0][:shared], [side[shared:] for side in sides]


def _is_whole(messages: Sequence[Message]) -> bool:
    """Whether messages begin a conversation, and not with an answer."""
    return bool(messages[0]["role"] != "assistant")


def _shared_messages(chosen: Sequence[Message], rejected: Sequence[Message]) -> int:
    """The number of messages with which both begin; each has at least one after them."""
    most = min(len(chosen), len(rejected)) - 1
    return next((at for at in range(most) if chosen[at] != rejected[at]), most)


def _side(
    source_id: str,
    name: str,
    messages: Sequence[Message],
    begins: int,
    tools: Sequence[Mapping[str, Any]] | None,
) -> Conversation:
    """One side of a row: its answers from the message `begins` on are trained on, except those of weight 0."""
    answers = [
        at for at, one in enumerate(messages) if at >= begins and one["role"] == "assistant" and one.get("weight") != 0
    ]
    plain = plain_messages(messages)
    return Conversation(source_id, name, plain, tools, answers, has_media(plain))
